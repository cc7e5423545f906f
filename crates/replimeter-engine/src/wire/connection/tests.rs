//! Logins with servers that do not keep to the protocol.

use std::{io::Write, pin::pin, task::Waker, thread};

use replimeter_model::target::Endpoint;

use super::*;
use crate::session::tests::{greeting, packet, peer};

fn finished<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(done) = polled {
            return done;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn answers_sent_before_tls_are_refused_by_a_load() {
    let mut node = peer(|mut stream| {
        let login = packet(3, &[0, 0, 0, 2, 0, 0, 0]);
        stream.write_all(&[packet(0, &greeting(true)), login].concat())?;
        thread::park();
        Ok(())
    });
    let port = node.endpoint.port;
    let url = format!("mysql://127.0.0.1:{port}/?ssl-mode=required");
    node.endpoint = Endpoint::parse(&url).unwrap().0;
    let target = WireTarget::new(&node).unwrap();
    let mut connection = WireConnection::start(&target).unwrap();
    let error = finished(connection.log_in()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Tls, "{error:?}");
    assert!(error.cause.contains("before TLS began"), "{error:?}");
}
