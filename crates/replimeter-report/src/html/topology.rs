//! The servers of a run as a drawing: who they are, and who receives from whom.

use replimeter_model::manifest::{Manifest, ServerRecord};
use serde::Serialize;

const WIDTH: u32 = 190;
const HEIGHT: u32 = 58;
const GAP: u32 = 60;
/// A cluster's members stand in one row, so that its lines arch over those between.
const ARCH: u32 = 34;

/// One box.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Server {
    x: u32,
    y: u32,
    name: String,
    version: String,
    address: String,
}

/// One line, as an SVG path.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Line {
    path: String,
    /// Members send to each other; a replica only receives.
    both: bool,
}

/// One shape's drawing.
#[derive(Debug, Serialize)]
pub(super) struct Drawing {
    shape: String,
    width: u32,
    height: u32,
    box_width: u32,
    box_height: u32,
    servers: Vec<Server>,
    lines: Vec<Line>,
    /// What lies between the servers, in words.
    link: Option<String>,
    /// The same in words, for who cannot see it.
    words: String,
}

/// Every shape of a run that is known.
pub(super) fn drawings(manifest: &Manifest) -> Vec<Drawing> {
    let mut shapes: Vec<&str> = Vec::new();
    for server in &manifest.servers {
        if !shapes.contains(&server.shape.as_str()) {
            shapes.push(&server.shape);
        }
    }
    let of = |shape: &str| manifest.servers.iter().filter(|server| server.shape == shape).collect::<Vec<_>>();
    let link =
        |shape: &str| manifest.sandboxes.iter().find(|sandbox| sandbox.shape == shape).and_then(|sandbox| sandbox.link.clone());
    shapes.into_iter().map(|shape| drawing(shape, &of(shape), link(shape))).collect()
}

/// Which of the servers this one receives from, by what its channel says.
fn source(server: &ServerRecord, all: &[&ServerRecord]) -> Option<usize> {
    let said = |names: [&str; 2]| names.iter().find_map(|name| server.replication.get(*name));
    let host = said(["Source_Host", "Master_Host"])?;
    let port = said(["Source_Port", "Master_Port"])?;
    all.iter().position(|other| other.address == format!("{host}:{port}"))
}

fn drawing(shape: &str, all: &[&ServerRecord], link: Option<String>) -> Drawing {
    let members = all.len() > 1 && all.iter().all(|server| server.name.starts_with("node"));
    let chain = shape.contains("chain");
    // Members in a row; else each below the one that it receives from.
    let from: Vec<Option<usize>> = (0..all.len())
        .map(|index| match index {
            0 => None,
            _ if members => None,
            // A link of ours stands between, so that the address is not the other's.
            _ => source(all[index], all).filter(|of| *of != index).or(Some(if chain { index - 1 } else { 0 })),
        })
        .collect();
    let column = |index: usize| match () {
        () if members || chain => index as u32,
        () if index == 0 => (all.len() as u32 - 1).saturating_sub(1) / 2,
        () => index as u32 - 1,
    };
    let row = |index: usize| u32::from(!members && !chain && index > 0);
    let top = if members && all.len() > 2 { ARCH } else { 4 };
    let place = |index: usize| (4 + column(index) * (WIDTH + GAP), top + row(index) * (HEIGHT + GAP));
    let mut lines = Vec::new();
    for (index, of) in from.iter().enumerate() {
        let Some(of) = of else { continue };
        let ((x, y), (from_x, from_y)) = (place(index), place(*of));
        let path = if y == from_y {
            format!("M{} {} L{} {}", from_x + WIDTH, from_y + HEIGHT / 2, x, y + HEIGHT / 2)
        } else {
            format!("M{} {} L{} {}", from_x + WIDTH / 2, from_y + HEIGHT, x + WIDTH / 2, y)
        };
        lines.push(Line { path, both: false });
    }
    if members {
        for one in 0..all.len() {
            for other in one + 1..all.len() {
                let ((x, y), (to, _)) = (place(one), place(other));
                let path = if other == one + 1 {
                    format!("M{} {} L{} {}", x + WIDTH, y + HEIGHT / 2, to, y + HEIGHT / 2)
                } else {
                    format!("M{} {} Q{} 0 {} {}", x + WIDTH / 2, y, (x + to + WIDTH) / 2, to + WIDTH / 2, y)
                };
                lines.push(Line { path, both: true });
            }
        }
    }
    let name = |index: usize| all[index].name.as_str();
    let words: Vec<String> = if members {
        vec![format!("{} are members of one cluster", (0..all.len()).map(name).collect::<Vec<_>>().join(", "))]
    } else {
        from.iter()
            .enumerate()
            .filter_map(|(index, of)| Some(format!("{} receives from {}", name(index), name((*of)?))))
            .collect()
    };
    let servers: Vec<Server> = all
        .iter()
        .enumerate()
        .map(|(index, server)| {
            let (x, y) = place(index);
            Server { x, y, name: server.name.clone(), version: server.title(), address: server.address.clone() }
        })
        .collect();
    let far = |of: fn(&Server) -> u32| servers.iter().map(of).max().unwrap_or(0);
    Drawing {
        shape: shape.to_owned(),
        width: far(|server| server.x) + WIDTH + 4,
        height: far(|server| server.y) + HEIGHT + 4,
        box_width: WIDTH,
        box_height: HEIGHT,
        lines,
        link,
        words: if words.is_empty() { "one server".to_owned() } else { words.join("; ") },
        servers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, address: &str, from: Option<&str>) -> ServerRecord {
        let mut server =
            ServerRecord { shape: "s".to_owned(), name: name.to_owned(), address: address.to_owned(), ..ServerRecord::default() };
        if let Some((host, port)) = from.and_then(|from| from.split_once(':')) {
            server.replication.insert("Master_Host".to_owned(), host.to_owned());
            server.replication.insert("Master_Port".to_owned(), port.to_owned());
        }
        server
    }

    fn words(shape: &str, servers: &[ServerRecord]) -> (String, usize) {
        let drawing = drawing(shape, &servers.iter().collect::<Vec<_>>(), None);
        for server in &drawing.servers {
            assert!(server.x + WIDTH <= drawing.width && server.y + HEIGHT <= drawing.height, "{drawing:?}");
        }
        for (index, one) in drawing.servers.iter().enumerate() {
            assert!(
                drawing.servers[..index].iter().all(|other| (other.x, other.y) != (one.x, one.y)),
                "no two lie on one another"
            );
        }
        (drawing.words, drawing.lines.len())
    }

    #[test]
    fn replicas_hang_below_what_they_receive_from() {
        let primary = server("primary", "h:1", None);
        let replicas = [primary.clone(), server("replica1", "h:2", Some("h:1")), server("replica2", "h:3", Some("h:2"))];
        assert_eq!(words("by hand", &replicas).0, "replica1 receives from primary; replica2 receives from replica1");
        let behind_links = [primary.clone(), server("replica1", "h:2", Some("h:9")), server("replica2", "h:3", Some("h:9"))];
        assert_eq!(words("async:2", &behind_links).0, "replica1 receives from primary; replica2 receives from primary");
        assert_eq!(words("chain:2", &behind_links).0, "replica1 receives from primary; replica2 receives from replica1");
        assert_eq!(words("none", &[primary]), ("one server".to_owned(), 0));
    }

    #[test]
    fn members_stand_in_a_row_and_know_each_other() {
        let members = ["node1", "node2", "node3"].map(|name| server(name, name, None));
        assert_eq!(words("galera:3", &members), ("node1, node2, node3 are members of one cluster".to_owned(), 3));
        assert_eq!(words("galera:5", &["node1", "node2", "node3", "node4", "node5"].map(|name| server(name, name, None))).1, 10);
        assert!(drawings(&Manifest::default()).is_empty());
    }
}
