//! Statements that the servers do not answer: the front gives them up, and leaves nothing behind.

use std::thread;

use replimeter_engine::Session;
use replimeter_suites::{LIMIT, TestEnvironment, clean, session, shared, wait_until};

use super::serve;

/// Connections of the front to each server.
const CONNECTIONS: usize = 2;
/// Connections to the primary that a dry run states.
const STATED: u64 = CONNECTIONS as u64 + 4;

pub(super) fn hanging_posts_are_ended_before_more_connect() {
    hang("mariadb/async:1");
}

pub(super) fn hanging_posts_on_mysql_are_ended_before_more_connect() {
    hang("mysql/async:1");
}

/// Returns the number of the front's connections that meet a condition, as one session sees them.
fn count(watching: &mut Session, other: u32, condition: &str) -> u64 {
    let own = watching.connection_id();
    let count = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'replimeter' AND id NOT IN ({own}, {other}) {condition}"
    );
    let count = watching.value("test", &count).unwrap();
    count.unwrap().parse().unwrap()
}

fn hang(shape: &str) {
    let sandbox = shared(shape, &[]);
    let primary = &sandbox.nodes()[0];
    let tool = TestEnvironment::new();
    let connections = CONNECTIONS.to_string();
    let front = serve(
        &tool,
        Some(sandbox.nodes()),
        &["--connections", &connections],
    );
    let (mut held, mut watching) = (session(primary), session(primary));
    let other = held.connection_id();
    let mut refused = || {
        thread::scope(|scope| {
            let post = || front.visitor().form("/insert", "title=a");
            let posts: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(post)).collect();
            posts
                .into_iter()
                .map(|post| post.join().unwrap())
                .for_each(|post| assert_eq!(post.status, 503, "{shape}: {post:?}"));
        });
        wait_until("no post waits on the server", LIMIT, || {
            let all = count(&mut watching, other, "");
            assert!(all <= STATED, "{shape}: {all} connections");
            count(&mut watching, other, "AND info LIKE 'INSERT%'") == 0
        });
    };
    // The server itself would wait for the lock for a day (MariaDB) or a year.
    held.run("lock", "LOCK TABLES replimeter.post READ")
        .unwrap();
    refused();
    held.run("unlock", "UNLOCK TABLES").unwrap();
    // Nor does it end this by itself.
    let hang = "CREATE TRIGGER replimeter.hang BEFORE INSERT ON replimeter.post FOR EACH ROW SET @slept = SLEEP(1000)";
    held.run("trigger", hang).unwrap();
    refused();
    held.run("trigger", "DROP TRIGGER replimeter.hang").unwrap();
    // Connections are replaced when the server has ended theirs.
    wait_until("posts are answered again", LIMIT, || {
        front.visitor().form("/insert", "title=b").status == 200
    });
    front.end();
    assert!(clean(primary), "{shape}");
}
