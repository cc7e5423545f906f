//! Links between sockets of this process.

use std::{
    io::{ErrorKind, Read, Write},
    net::Ipv4Addr,
    sync::mpsc,
    thread::{sleep, spawn},
};

use super::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

fn delay(micros: u64) -> LinkSettings {
    LinkSettings {
        delay: Duration::from_micros(micros),
        ..LinkSettings::default()
    }
}

fn set_up(stream: &TcpStream) {
    stream.set_nodelay(true).unwrap();
    // A test that fails must end.
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
}

/// Returns a link with one connection over it: the link, the client's end, the target's end.
pub(super) fn connected(name: &str, settings: LinkSettings) -> (Link, TcpStream, TcpStream) {
    let target = listener();
    let link = Link::to(name, listener(), target.local_addr().unwrap(), settings).unwrap();
    let client = TcpStream::connect(link.address()).unwrap();
    let (served, _) = target.accept().unwrap();
    set_up(&client);
    set_up(&served);
    (link, client, served)
}

fn random(bytes: usize, mut seed: u64) -> Vec<u8> {
    (0..bytes)
        .map(|_| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .collect()
}

/// Returns whether nothing arrives for a while.
fn silent(stream: &mut TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).unwrap();
    let outcome = stream.read(&mut [0]);
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    outcome.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn expect(stream: &mut TcpStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == expected);
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(1));
    }
}

/// Sends `count` messages, `gap` apart, and returns how long each took.
pub(super) fn travel_times(
    from: &mut TcpStream,
    to: &mut TcpStream,
    count: usize,
    gap: Duration,
) -> Vec<Duration> {
    let mut from = from.try_clone().unwrap();
    let start = Instant::now();
    let sender = spawn(move || {
        for number in 0..count {
            let due = start + gap * number as u32;
            sleep(due.saturating_duration_since(Instant::now()));
            let sent = Instant::now() - start;
            from.write_all(&(sent.as_nanos() as u64).to_le_bytes())
                .unwrap();
        }
    });
    let times = (0..count)
        .map(|_| {
            let mut stamp = [0; 8];
            to.read_exact(&mut stamp).unwrap();
            start.elapsed() - Duration::from_nanos(u64::from_le_bytes(stamp))
        })
        .collect();
    sender.join().unwrap();
    times
}

pub(super) fn quantile(times: &mut [Duration], quantile: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * quantile) as usize]
}

#[test]
fn delays_are_never_short_and_do_not_accumulate() {
    let (link, mut client, mut target) = connected("pile", delay(5000));
    let mut times = travel_times(&mut client, &mut target, 1000, Duration::from_micros(100));
    assert!(
        times.iter().all(|time| *time >= Duration::from_millis(5)),
        "{:?}",
        times.iter().min()
    );
    // If delays added up, the median would be 2.5 s. It is a few dozen microseconds beyond the
    // delay, but on an overloaded machine this test itself reads late.
    let median = quantile(&mut times, 0.5);
    assert!(median < Duration::from_millis(500), "{median:?}");

    let back = travel_times(&mut target, &mut client, 100, Duration::from_micros(100));
    assert!(back.iter().all(|time| *time >= Duration::from_millis(5)));
    // Counted just after it is sent: the receiver may be faster.
    until("all is counted", || link.counters().to_client.bytes == 800);
    let counters = link.counters();
    assert_eq!(counters.to_target.bytes, 8000);
    assert_eq!(
        (counters.accepted, counters.open, counters.refused),
        (1, 1, 0)
    );
    assert!(counters.to_target.late_most >= counters.to_target.late_total / 1000);
}

#[test]
fn bytes_pass_unchanged_both_ways_at_once() {
    const BYTES: usize = 6 * 1024 * 1024;
    for settings in [
        LinkSettings::default(),
        LinkSettings {
            delay: Duration::from_millis(3),
            jitter: Duration::from_millis(2),
            bandwidth: Some(100_000_000),
        },
    ] {
        let (link, client, target) = connected("both", settings);
        let ends = [
            (client.try_clone().unwrap(), 1),
            (target.try_clone().unwrap(), 2),
        ];
        let senders = ends.map(|(mut stream, seed)| {
            spawn(move || {
                let mut rest = &random(BYTES, seed)[..];
                let mut length = 1;
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(length.min(rest.len()));
                    stream.write_all(now).unwrap();
                    rest = later;
                    length = length * 7 % 99_991;
                }
                stream.shutdown(Shutdown::Write).unwrap();
            })
        });
        let receivers = [(client, 2), (target, 1)].map(|(mut stream, seed)| {
            spawn(move || {
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert!(got == random(BYTES, seed));
            })
        });
        senders
            .into_iter()
            .chain(receivers)
            .for_each(|thread| thread.join().unwrap());
        until("the connection ends", || link.counters().open == 0);
        let counters = link.counters();
        assert_eq!(
            (counters.to_target.bytes, counters.to_client.bytes),
            (BYTES as u64, BYTES as u64)
        );
    }
}

#[test]
fn slow_receiver_blocks_the_sender_without_loss() {
    // More than one direction can hold in transit.
    const BYTES: usize = direction::MAX_BYTES_IN_FLIGHT + 48 * 1024 * 1024;
    let (link, mut client, mut target) = connected("slow", delay(100));
    let sender = spawn(move || {
        let block = random(1 << 20, 3);
        for _ in 0..BYTES >> 20 {
            client.write_all(&block).unwrap();
        }
        client
    });
    sleep(Duration::from_millis(300));
    assert!(!sender.is_finished());
    let block = random(1 << 20, 3);
    for _ in 0..BYTES >> 20 {
        expect(&mut target, &block);
    }
    sender.join().unwrap();
    until("all is counted", || {
        link.counters().to_target.bytes == BYTES as u64
    });
}

#[test]
fn bandwidth_limits_each_direction() {
    let settings = LinkSettings {
        bandwidth: Some(1_000_000),
        ..delay(1000)
    };
    let (_link, mut client, mut target) = connected("band", settings);
    let data = random(200_000, 4);
    let start = Instant::now();
    client.write_all(&data).unwrap();
    target.read_exact(&mut [0; 1000]).unwrap();
    let first = start.elapsed();
    target.read_exact(&mut vec![0; 199_000]).unwrap();
    let last = start.elapsed();
    assert!(first >= Duration::from_millis(2), "{first:?}");
    // A large block arrives in pieces.
    assert!(first < Duration::from_millis(100), "{first:?}");
    assert!(last >= Duration::from_millis(201), "{last:?}");
    assert!(last < Duration::from_millis(600), "{last:?}");
}

#[test]
fn jitter_keeps_the_order() {
    let settings = LinkSettings {
        jitter: Duration::from_millis(4),
        ..delay(5000)
    };
    let (_link, mut client, mut target) = connected("jitter", settings);
    // Stamps in another order would give wrong times.
    let mut times = travel_times(&mut client, &mut target, 300, Duration::from_millis(1));
    assert!(times.iter().all(|time| *time >= Duration::from_millis(1)));
    let (low, high) = (quantile(&mut times, 0.05), quantile(&mut times, 0.95));
    assert!(high - low > Duration::from_millis(2), "{low:?} {high:?}");
}

#[test]
fn changed_settings_apply_to_later_data() {
    let (link, mut client, mut target) = connected("set", delay(0));
    client.write_all(b"a").unwrap();
    expect(&mut target, b"a");
    link.set(delay(200_000));
    assert_eq!(link.settings(), delay(200_000));
    let start = Instant::now();
    client.write_all(b"b").unwrap();
    // The byte must have arrived at the link before the settings change again.
    sleep(Duration::from_millis(100));
    link.set(delay(0));
    client.write_all(b"c").unwrap();
    expect(&mut target, b"bc");
    assert!(start.elapsed() >= Duration::from_millis(200));
    let start = Instant::now();
    client.write_all(b"d").unwrap();
    expect(&mut target, b"d");
    assert!(start.elapsed() < Duration::from_millis(150));
}

#[test]
fn cut_link_holds_data_until_healed() {
    let (link, mut client, mut target) = connected("cut", delay(3_600_000_000));
    client.write_all(b"under way").unwrap();
    sleep(Duration::from_millis(50));
    link.cut();
    link.set(delay(40_000));
    assert!(link.is_cut());
    client.write_all(b", sent since").unwrap();
    target.write_all(b"back").unwrap();
    let before = link.counters();
    // New connections are not served; this one gives up, the other stays.
    drop(TcpStream::connect(link.address()).unwrap());
    let mut second = TcpStream::connect(link.address()).unwrap();
    assert!(silent(&mut target, Duration::from_millis(100)));
    assert!(silent(&mut client, Duration::from_millis(10)));
    assert!(silent(&mut second, Duration::from_millis(10)));
    assert_eq!(link.counters(), before);

    let healed = Instant::now();
    link.heal();
    assert!(!link.is_cut());
    expect(&mut target, b"under way, sent since");
    expect(&mut client, b"back");
    let elapsed = healed.elapsed();
    assert!(elapsed >= Duration::from_millis(40), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    until("the connection that waited is served", || {
        link.counters().accepted == 2
    });
    // Again, healed before a thread's check.
    link.set(delay(3_600_000_000));
    client.write_all(b"more").unwrap();
    sleep(Duration::from_millis(50));
    link.set(delay(40_000));
    let again = Instant::now();
    link.cut();
    link.heal();
    expect(&mut target, b"more");
    assert!(again.elapsed() >= Duration::from_millis(40));
}

#[test]
fn cut_link_hides_a_closed_peer() {
    let (link, client, mut target) = connected("gone", delay(0));
    link.cut();
    drop(client);
    assert!(silent(&mut target, Duration::from_millis(50)));
    link.heal();
    assert_eq!(target.read(&mut [0]).unwrap(), 0);
}

#[test]
fn half_close_arrives_in_order_after_the_delay() {
    let (link, mut client, mut target) = connected("half", delay(20_000));
    let start = Instant::now();
    client.write_all(b"last words").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    target.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"last words");
    assert!(start.elapsed() >= Duration::from_millis(20));
    // The other direction stays open.
    target.write_all(b"answer").unwrap();
    expect(&mut client, b"answer");
    assert_eq!(link.counters().open, 1);
    drop(target);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    until("the connection ends", || link.counters().open == 0);
}

#[test]
fn reset_reaches_the_other_side() {
    for from_client in [true, false] {
        let (link, client, target) = connected("abrupt", delay(20_000));
        let (mut ending, mut other) = if from_client {
            (client, target)
        } else {
            (target, client)
        };
        let start = Instant::now();
        ending.write_all(b"data").unwrap();
        // Let it arrive: a reset would discard it.
        sleep(Duration::from_millis(10));
        reset(&ending);
        drop(ending);
        expect(&mut other, b"data");
        assert_eq!(
            other.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        assert!(start.elapsed() >= Duration::from_millis(30));
        until("the connection ends", || link.counters().open == 0);
    }
}

#[test]
fn write_to_closed_side_breaks_the_connection() {
    let (link, mut client, target) = connected("broken", delay(1000));
    drop(target);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let deadline = Instant::now() + TEST_TIMEOUT;
    while client.write_all(b"anybody?").is_ok() {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(1));
    }
    until("the connection ends", || link.counters().open == 0);
}

#[test]
fn refused_target_closes_the_connection() {
    let gone = listener().local_addr().unwrap();
    let link = Link::to("refused", listener(), gone, delay(0)).unwrap();
    let mut client = TcpStream::connect(link.address()).unwrap();
    set_up(&client);
    assert_eq!(
        client.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    until("it is counted", || link.counters().open == 0);
    assert_eq!(
        link.counters(),
        LinkCounters {
            accepted: 1,
            refused: 1,
            ..LinkCounters::default()
        }
    );
}

/// Returns the processor time of a link's threads, and their number.
pub(super) fn threads_of(name: &str) -> (u64, usize) {
    let tasks = procfs::process::Process::myself().unwrap().tasks().unwrap();
    let named = tasks
        .flatten()
        .filter(|task| task.stat().is_ok_and(|stat| stat.comm == name));
    let times: Vec<u64> = named
        .filter_map(|task| task.schedstat().ok())
        .map(|stat| stat.sum_exec_runtime)
        .collect();
    (times.iter().sum(), times.len())
}

#[test]
fn idle_link_uses_no_cpu() {
    let (link, mut client, mut target) = connected("idle", delay(2000));
    client.write_all(b"x").unwrap();
    expect(&mut target, b"x");
    // Half closed: the known end must not wake a thread again.
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(target.read(&mut [0]).unwrap(), 0);
    for cut in [false, true] {
        if cut {
            link.cut();
            drop(TcpStream::connect(link.address()).unwrap());
            target.write_all(b"held").unwrap();
        }
        sleep(Duration::from_millis(20));
        let (before, count) = threads_of("idle");
        assert_eq!(count, 2);
        sleep(Duration::from_millis(200));
        let used = Duration::from_nanos(threads_of("idle").0 - before);
        assert!(used < Duration::from_millis(2), "{used:?}");
    }
}

#[test]
fn closing_ends_threads_and_frees_the_port() {
    for cut in [false, true] {
        let (link, mut client, _target) = connected("closing", delay(3_600_000_000));
        client.write_all(b"never arrives").unwrap();
        sleep(Duration::from_millis(5));
        if cut {
            link.cut();
        }
        let address = link.address();
        let start = Instant::now();
        drop(link);
        let took = start.elapsed();
        // Less than a millisecond, except on an overloaded machine.
        assert!(took < Duration::from_secs(1), "{took:?}");
        until("the threads end", || threads_of("closing").1 == 0);
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
        // A process that another test is just starting holds copies of this process's sockets until
        // it executes its program.
        until("the port is free", || TcpListener::bind(address).is_ok());
    }
}

#[test]
fn closing_does_not_wait_for_a_connector() {
    let (enter, entered) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let connect: Connector = Box::new(move || {
        enter.send(()).unwrap();
        let _ = released.lock().unwrap().recv();
        Err(io::Error::other("late"))
    });
    let link = Link::start("connector", listener(), connect, delay(0)).unwrap();
    let mut client = TcpStream::connect(link.address()).unwrap();
    set_up(&client);
    entered.recv().unwrap();
    link.close();
    link.close();
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(threads_of("connector").1, 1);
    drop(release);
    until("the thread ends", || threads_of("connector").1 == 0);
}
