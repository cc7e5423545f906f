use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::Instant,
};

use super::*;

/// No user stops the run.
static CONTINUES: AtomicBool = AtomicBool::new(false);

#[test]
fn sockets_and_times_wake_their_futures() {
    let clock = Clock::start();
    let events = EventLoop::new(&clock).unwrap();
    let (mut here, mut there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let order = RefCell::new(Vec::new());
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        there.write_all(b"x").unwrap();
        there
    });
    let (socket, timer) = (events.handle(0), events.handle(1));
    socket.register(&here).unwrap();
    let futures: Vec<Task<'_>> = vec![
        Box::pin(async {
            let mut byte = [0];
            poll_fn(|_| match here.read(&mut byte) {
                Ok(_) => Poll::Ready(()),
                Err(_) => Poll::Pending,
            })
            .await;
            order.borrow_mut().push("socket");
        }),
        Box::pin(async {
            timer.sleep(Duration::from_millis(5)).await;
            order.borrow_mut().push("time");
        }),
    ];
    assert_eq!(events.run(futures, &mut || LoopControl::Continue), 0);
    assert_eq!(*order.borrow(), ["time", "socket"]);
    drop(writer.join().unwrap());
}

#[test]
fn times_come_in_order_and_not_early() {
    let clock = Clock::start();
    let events = EventLoop::new(&clock).unwrap();
    let handles: Vec<TaskHandle> = (0..50).map(|index| events.handle(index)).collect();
    let order = RefCell::new(Vec::new());
    let began = clock.now();
    let futures = handles.iter().enumerate().map(|(index, handle)| {
        // The last ones are due first.
        let due = began + Nanos((50 - index as i64) * 200_000);
        let order = &order;
        let task: Task<'_> = Box::pin(async move {
            handle.sleep_until(due).await;
            assert!(clock.now() >= due);
            order.borrow_mut().push(index);
        });
        task
    });
    events.run(futures.collect(), &mut || LoopControl::Continue);
    assert!(order.borrow().is_sorted_by(|a, b| a > b), "{order:?}");
}

#[test]
fn wake_and_abandon_end_long_waits() {
    let clock = Clock::start();
    let events = EventLoop::new(&clock).unwrap();
    let handle = events.handle(0);
    let began = Instant::now();
    let sleeper = || -> Vec<Task<'_>> {
        vec![Box::pin(async {
            handle.sleep(Duration::from_secs(600)).await
        })]
    };
    assert_eq!(events.run(sleeper(), &mut || LoopControl::Wake), 0);
    assert_eq!(events.run(sleeper(), &mut || LoopControl::Abandon), 1);
    assert!(began.elapsed() < Duration::from_secs(300));
}

#[test]
fn future_that_wakes_itself_lets_others_continue() {
    let clock = Clock::start();
    let events = EventLoop::new(&clock).unwrap();
    let handles = [events.handle(0), events.handle(1)];
    let (polls, slept) = (Cell::new(0u64), Cell::new(false));
    let futures: Vec<Task<'_>> = vec![
        Box::pin(poll_fn(|context| {
            polls.set(polls.get() + 1);
            context.waker().wake_by_ref();
            Poll::Pending
        })),
        Box::pin(async {
            handles[1].sleep(Duration::from_millis(5)).await;
            slept.set(true);
        }),
    ];
    let left = events.run(futures, &mut || match slept.get() {
        true => LoopControl::Abandon,
        false => LoopControl::Continue,
    });
    assert_eq!(left, 1);
    assert!(polls.get() > 10, "{polls:?}");
}

#[test]
fn silent_peer_reaches_the_limit() {
    let clock = Clock::start();
    let events = EventLoop::new(&clock).unwrap();
    let handle = events.handle(0);
    let limited = handle.limited(Duration::from_millis(100), std::future::pending::<()>());
    assert_eq!(events.block_on(limited, &CONTINUES).unwrap(), None);
    let ready = handle.limited(Duration::from_millis(100), async { 7 });
    assert_eq!(events.block_on(ready, &CONTINUES).unwrap(), Some(7));
    let silent = std::future::pending::<()>();
    let stopped = events.block_on(silent, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(MeasureError::Interrupted)));
}

#[test]
fn logins_are_bounded_and_each_of_them_runs() {
    let clock = Clock::start();
    let events = EventLoop::new(&clock).unwrap();
    let handles: Vec<TaskHandle> = (0..200).map(|index| events.handle(index)).collect();
    let (most, done) = (Cell::new(0), Cell::new(0));
    let futures = handles.iter().map(|handle| {
        let (most, done) = (&most, &done);
        let task: Task<'_> = Box::pin(async move {
            let permit = handle.login_permit().await;
            most.set(most.get().max(handle.state.logins.get()));
            handle.sleep(Duration::from_millis(1)).await;
            drop(permit);
            done.set(done.get() + 1);
        });
        task
    });
    assert_eq!(
        events.run(futures.collect(), &mut || LoopControl::Continue),
        0
    );
    assert_eq!((most.get(), done.get()), (LOGINS, 200));
}

#[test]
fn delay_of_a_busy_loop_is_recorded() {
    let clock = Clock::start();
    let events = EventLoop::new(&clock).unwrap();
    let pairs: Vec<(UnixStream, UnixStream)> =
        (0..2).map(|_| UnixStream::pair().unwrap()).collect();
    let handles: Vec<TaskHandle> = (0..2).map(|index| events.handle(index)).collect();
    for ((here, there), handle) in pairs.iter().zip(&handles) {
        here.set_nonblocking(true).unwrap();
        handle.register(here).unwrap();
        (&*there).write_all(b"x").unwrap();
    }
    handles[0].count_delays();
    let futures = pairs.iter().map(|(here, _)| {
        let task: Task<'_> = Box::pin(async move {
            // The first poll is at the start, not by an event.
            let mut polled = false;
            poll_fn(|_| {
                if std::mem::replace(&mut polled, true) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            let _ = (&*here).read(&mut [0]);
            thread::sleep(Duration::from_millis(20));
        });
        task
    });
    events.run(futures.collect(), &mut || LoopControl::Continue);
    let delays = events.take_delays();
    assert_eq!(delays.count(), 2);
    // The second waited for the first.
    assert!(delays.max().unwrap() >= Nanos(19_000_000), "{delays:?}");
    assert_eq!(events.take_delays().count(), 0);
}
