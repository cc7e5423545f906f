//! The punctuality of links on this machine. Run with
//! `cargo test --release -p replimeter-sandbox link::accuracy -- --ignored --nocapture`.

use std::{
    hint::spin_loop,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use super::{
    LinkSettings,
    tests::{connected, quantile, threads_of, travel_times},
    thread::set_timer_slack,
};

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}

/// Sends messages at an interval for two seconds, without a link and through links.
fn measure(what: &str, gap: Duration) {
    let messages = (2_000_000 / gap.as_micros()) as usize;
    let gap_micros = gap.as_micros();
    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut client = TcpStream::connect(target.local_addr().unwrap()).unwrap();
    let (mut served, _) = target.accept().unwrap();
    client.set_nodelay(true).unwrap();
    let mut times = travel_times(&mut client, &mut served, messages, gap);
    let (p50, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
    println!(
        "{what} every {gap_micros} µs, no link:     p50 {:6.1} p99 {:7.1} µs",
        micros(p50),
        micros(p99)
    );

    let mut base = Duration::ZERO;
    for millis in [0, 1, 5, 20] {
        let settings = LinkSettings {
            delay: Duration::from_millis(millis),
            ..LinkSettings::default()
        };
        let (link, mut client, mut served) = connected("accuracy", settings);
        let mut times = travel_times(&mut client, &mut served, messages, gap);
        assert!(times.iter().all(|time| *time >= settings.delay));
        let (p50, p99) = (quantile(&mut times, 0.5), quantile(&mut times, 0.99));
        if millis == 0 {
            base = p50;
        }
        let direction = link.counters().to_target;
        let used = Duration::from_nanos(threads_of("accuracy").0);
        println!(
            "{what} every {gap_micros} µs, delay {millis:2} ms: p50 {:6.1} p99 {:7.1} µs beyond it; p50 against 0 ms {:+6.1} µs; \
             link's own count: mean {:5.1} most {:7.1} µs; processor {:4.1} µs a message",
            micros(p50 - settings.delay),
            micros(p99 - settings.delay),
            micros(p50 - settings.delay) - micros(base),
            micros(direction.late_total) / direction.chunks.max(1) as f64,
            micros(direction.late_most),
            micros(used) / messages as f64,
        );
    }
}

/// Measures the throughput of a large block, sent as fast as the ends can.
fn throughput(what: &str) {
    const BYTES: usize = 256 << 20;
    for millis in [0, 5] {
        let settings = LinkSettings {
            delay: Duration::from_millis(millis),
            ..LinkSettings::default()
        };
        let (_link, mut client, mut served) = connected("accuracy", settings);
        let start = Instant::now();
        let sender = spawn(move || {
            be_ordinary();
            let block = vec![7; 1 << 20];
            (0..BYTES >> 20).for_each(|_| client.write_all(&block).unwrap());
            client
        });
        let receiver = spawn(move || {
            be_ordinary();
            let mut block = vec![7; 1 << 20];
            (0..BYTES >> 20).for_each(|_| served.read_exact(&mut block).unwrap());
            served
        });
        let ends = (sender.join().unwrap(), receiver.join().unwrap());
        let rate = BYTES as f64 / start.elapsed().as_secs_f64() / 1e6;
        let used = Duration::from_nanos(threads_of("accuracy").0);
        drop(ends);
        println!(
            "{what} a large block, delay {millis} ms: {rate:.0} MB/s, processor {:.2} s a GB",
            used.as_secs_f64() * 1e9 / BYTES as f64
        );
    }
}

#[test]
#[ignore = "prints figures; meaningless in parallel with other tests"]
fn link_accuracy_is_within_limits() {
    static STOP: AtomicBool = AtomicBool::new(false);
    // The ends are as punctual as the measuring threads.
    set_timer_slack();
    let gaps = [Duration::from_micros(700), Duration::from_micros(100)];
    gaps.into_iter().for_each(|gap| measure("idle", gap));
    throughput("idle");
    let burners: Vec<_> = (0..2)
        .map(|_| {
            // Started by an ordinary thread: priority is inherited.
            spawn(|| {
                be_ordinary();
                while !STOP.load(Ordering::Relaxed) {
                    spin_loop();
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(50));
    gaps.into_iter().for_each(|gap| measure("busy", gap));
    throughput("busy");
    STOP.store(true, Ordering::Relaxed);
    burners
        .into_iter()
        .for_each(|burner| burner.join().unwrap());
}

fn be_ordinary() {
    let priority = libc::sched_param { sched_priority: 0 };
    #[allow(unsafe_code, reason = "no safe crate in use wraps sched_setscheduler")]
    // SAFETY: the call reads the one struct, which outlives it; 0 means this thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const priority) };
    assert_eq!(answer, 0);
}
