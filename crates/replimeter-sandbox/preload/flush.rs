//! A library that is loaded into servers before their C library: each flush of a file to the disk takes at least the time that
//! the environment gives, and flushes of one server are served one after another, as by a disk of its own.
//!
//! It needs nothing but functions that every C library of Linux has, without a version, so that it loads wherever a server runs.
#![no_std]

use core::{
    ffi::{CStr, c_char, c_int, c_long},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

/// The least time of a flush, in nanoseconds.
const DELAY: &CStr = c"REPLIMETER_FLUSH_NS";

/// Numbers of system calls (asm/unistd.h; for the others asm-generic/unistd.h).
#[cfg(target_arch = "x86_64")]
mod number {
    pub const FSYNC: i64 = 74;
    pub const FDATASYNC: i64 = 75;
    pub const PRCTL: i64 = 157;
    pub const CLOCK_GETTIME: i64 = 228;
    pub const CLOCK_NANOSLEEP: i64 = 230;
}
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64", target_arch = "loongarch64"))]
mod number {
    pub const FSYNC: i64 = 82;
    pub const FDATASYNC: i64 = 83;
    pub const PRCTL: i64 = 167;
    pub const CLOCK_GETTIME: i64 = 113;
    pub const CLOCK_NANOSLEEP: i64 = 115;
}

const CLOCK_MONOTONIC: c_long = 1;
const TIMER_ABSTIME: c_long = 1;
const PR_SET_TIMERSLACK: c_long = 29;
const SECOND: i64 = 1_000_000_000;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

unsafe extern "C" {
    /// Sets `errno`, as the functions that are replaced do.
    fn syscall(number: c_long, ...) -> c_long;
    fn getenv(name: *const c_char) -> *const c_char;
}

/// When the disk has served all flushes so far.
static FREE: AtomicI64 = AtomicI64::new(0);
/// The least time of a flush; negative while it is not known.
static NANOS: AtomicI64 = AtomicI64::new(-1);

fn now() -> i64 {
    let mut time = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: the kernel writes one time into it.
    unsafe { syscall(number::CLOCK_GETTIME, CLOCK_MONOTONIC, &raw mut time) };
    time.seconds.wrapping_mul(SECOND).wrapping_add(time.nanos)
}

fn delay() -> i64 {
    let known = NANOS.load(Relaxed);
    if known >= 0 {
        return known;
    }
    let mut nanos: i64 = 0;
    // SAFETY: the environment's text ends with a zero, at which the loop stops.
    unsafe {
        let mut text = getenv(DELAY.as_ptr());
        while !text.is_null() && matches!(*text as u8, b'0'..=b'9') {
            nanos = nanos.wrapping_mul(10).wrapping_add(i64::from(*text as u8 - b'0'));
            text = text.add(1);
        }
    }
    NANOS.store(nanos.max(0), Relaxed);
    nanos.max(0)
}

/// Takes the next turn of the disk: returns when it ends.
fn reserve_disk() -> i64 {
    let (begin, delay) = (now(), delay());
    let mut free = FREE.load(Relaxed);
    loop {
        let end = begin.max(free).wrapping_add(delay);
        match FREE.compare_exchange_weak(free, end, Relaxed, Relaxed) {
            Ok(_) => return end,
            Err(other) => free = other,
        }
    }
}

fn wait_until(end: i64) {
    let time = Timespec {
        seconds: end.wrapping_div(SECOND),
        nanos: end.wrapping_rem(SECOND),
    };
    // SAFETY: the kernel reads one time; a thread's timers are exact from now on.
    unsafe {
        syscall(number::PRCTL, PR_SET_TIMERSLACK, 1 as c_long);
        // Again after a signal.
        while now() < end {
            syscall(number::CLOCK_NANOSLEEP, CLOCK_MONOTONIC, TIMER_ABSTIME, &raw const time, 0 as c_long);
        }
    }
}

fn flush(number: c_long, file: c_int) -> c_int {
    let end = reserve_disk();
    // SAFETY: the caller's own call.
    let result = unsafe { syscall(number, c_long::from(file)) };
    if result == 0 {
        wait_until(end);
    }
    result as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn fsync(file: c_int) -> c_int {
    flush(number::FSYNC, file)
}

#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(file: c_int) -> c_int {
    flush(number::FDATASYNC, file)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
