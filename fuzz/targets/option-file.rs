//! An option file.

#![no_main]

use std::{cell::RefCell, fs::File, io::Write as _, os::fd::AsRawFd as _};

use replimeter_engine::option_file;
use rustix::fs::{MemfdFlags, memfd_create};

thread_local! {
    static FILE: RefCell<File> = RefCell::new({
        let file = memfd_create("my.cnf", MemfdFlags::empty()).expect("memory for a file");
        // A file that every user can write to is refused.
        rustix::fs::fchmod(&file, 0o600.into()).expect("the file is in memory");
        file.into()
    });
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    FILE.with_borrow_mut(|file| {
        rustix::fs::ftruncate(&*file, 0).expect("the file is in memory");
        rustix::fs::seek(&*file, rustix::fs::SeekFrom::Start(0)).expect("the file is in memory");
        file.write_all(input).expect("the file is in memory");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        match option_file::read(path.as_ref()) {
            Ok(credentials) => drop(credentials.tls.options().map_err(|error| error.to_string())),
            Err(error) => drop(error.to_string()),
        }
    });
});
