//! Servers that are named by their sockets.

use super::written;

#[test]
fn servers_of_one_machine_differ_by_their_sockets() {
    let of = |sockets: [&str; 2]| {
        let url = |socket| format!("mysql://u@localhost/?socket={socket}");
        let [a, b] = sockets.map(url);
        written(&format!(
            "command = 'lag'\n[target]\nnodes = [{{ name = 'a', url = '{a}' }}, {{ name = 'b', url = '{b}' }}]"
        ))
    };
    assert!(of(["/a", "/b"]).is_ok());
    let error = of(["/a", "/a"]).unwrap_err().to_string();
    assert!(error.contains("the same address /a"), "{error}");
}
