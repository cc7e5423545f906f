//! The servers of a run as a drawing: names, roles, and who receives from whom.

use replimeter_model::{
    manifest::{Manifest, ServerRecord},
    replication::Mode,
};
use serde::Serialize;

const WIDTH: u32 = 190;
const HEIGHT: u32 = 74;
const GAP: u32 = 60;
/// Height of the arches: a cluster's members are in one row, so lines between non-adjacent ones arch over the
/// others.
const ARCH: u32 = 34;

/// One box.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ServerBox {
    x: u32,
    y: u32,
    name: String,
    role: &'static str,
    version: String,
    address: String,
}

/// One line, as an SVG path.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct LinkPath {
    path: String,
    /// Members send to each other; a replica only receives.
    both: bool,
    /// The replication mode and the link's settings.
    label: String,
    label_x: u32,
    label_y: u32,
}

/// One shape's drawing.
#[derive(Debug, Serialize)]
pub(super) struct Drawing {
    shape: String,
    width: u32,
    height: u32,
    box_width: u32,
    box_height: u32,
    servers: Vec<ServerBox>,
    lines: Vec<LinkPath>,
    /// The links between the servers, in words.
    link: Option<String>,
    /// The replication mode, in a few words.
    mode: String,
    /// Who receives from whom, as text for screen readers.
    words: String,
}

/// Returns the drawings of all known shapes of a run.
pub(super) fn drawings(manifest: &Manifest) -> Vec<Drawing> {
    let mut shapes: Vec<&str> = Vec::new();
    for server in &manifest.servers {
        if !shapes.contains(&server.shape.as_str()) {
            shapes.push(&server.shape);
        }
    }
    let of = |shape: &str| {
        let servers = manifest
            .servers
            .iter()
            .filter(|server| server.shape == shape);
        let mut sandboxes = manifest.sandboxes.iter();
        let sandbox = sandboxes.find(|sandbox| sandbox.shape == shape);
        let link = sandbox.and_then(|sandbox| sandbox.link.clone());
        drawing(shape, &servers.collect::<Vec<_>>(), link)
    };
    shapes.into_iter().map(of).collect()
}

/// How every server of a shape receives writes.
struct Relations<'a> {
    all: &'a [&'a ServerRecord],
    /// The source of each server, by a channel.
    from: Vec<Option<usize>>,
    /// Whether each is in the same cluster as the first, which is written to.
    member: Vec<bool>,
    /// Their kind of cluster.
    cluster: Option<Mode>,
    /// Hops from the server that is written to.
    depth: Vec<u32>,
}

impl<'a> Relations<'a> {
    fn of(all: &'a [&'a ServerRecord]) -> Self {
        let mode = |server: &ServerRecord| server.mode.unwrap_or_default();
        let cluster = all.first().map(|first| mode(first));
        let cluster = cluster.filter(|mode| mode.has_members());
        let source = |server: &&ServerRecord| {
            let name = server.receives_from.as_ref()?;
            all.iter().position(|other| other.name == *name)
        };
        let from: Vec<Option<usize>> = all.iter().map(source).collect();
        let is_member = |(server, from): (&&ServerRecord, &Option<usize>)| {
            from.is_none() && cluster == Some(mode(server))
        };
        let member = all.iter().zip(&from).map(is_member).collect();
        let depth = (0..all.len())
            .map(|index| {
                let (mut hops, mut at) = (0, index);
                // Two servers that name each other must not cause an endless loop.
                while let Some(of) = from[at].filter(|_| hops < all.len() as u32) {
                    (hops, at) = (hops + 1, of);
                }
                hops
            })
            .collect();
        Self {
            all,
            from,
            member,
            cluster,
            depth,
        }
    }

    /// Returns whether the shape is a chain without branches, drawn from left to right.
    fn chain(&self) -> bool {
        self.all.len() > 2
            && self
                .depth
                .iter()
                .enumerate()
                .all(|(index, depth)| *depth == index as u32)
    }

    /// Returns when the first server waits for a replica, if one acknowledges receipt.
    fn wait_point(&self) -> Option<&'static str> {
        let mut modes = self.all.iter().filter_map(|server| server.mode);
        let point = self.all.first()?.meaning.wait_point?;
        modes.any(Mode::waits_for_receipt).then_some(point)
    }

    /// Returns the role of a server.
    fn role(&self, index: usize) -> &'static str {
        let primaries = self.all[0].meaning.single_primary;
        match (self.cluster, self.member[index], index) {
            (Some(Mode::Group), true, 0) if primaries => "primary of the group",
            (Some(Mode::Group), true, _) if primaries => "secondary of the group",
            (Some(_), true, 0) => "member, writer",
            (Some(_), true, _) => "member",
            _ if self.all.len() == 1 => "only server",
            (.., 0) => "primary",
            _ if self.from.contains(&Some(index)) => "replica and source",
            _ => "replica",
        }
    }

    /// Returns how a server receives.
    fn way(&self, index: usize) -> &'static str {
        match self.all[index].mode {
            Some(Mode::None) | None => "",
            Some(mode) => mode.title(),
        }
    }

    /// Returns the mode as text.
    fn mode(&self) -> String {
        let chain = if self.depth.iter().any(|depth| *depth > 1) {
            " in a chain"
        } else {
            ""
        };
        match (self.cluster, self.wait_point()) {
            (Some(Mode::Group), _) if self.all[0].meaning.single_primary => {
                "group with one primary".to_owned()
            }
            (Some(Mode::Group), _) => "group with several primaries".to_owned(),
            (Some(mode), _) => format!("{} cluster", mode.title()),
            (None, Some(point)) => format!("semi-sync {point}{chain}"),
            (None, None) if self.all.len() == 1 => "no replication".to_owned(),
            (None, None) => format!("async{chain}"),
        }
    }

    fn words(&self) -> String {
        let name = |index: usize| self.all[index].name.as_str();
        let members: Vec<&str> = (0..self.all.len())
            .filter(|index| self.member[*index])
            .map(name)
            .collect();
        let mut words = Vec::new();
        if members.len() > 1 {
            words.push(format!("{} are members of one cluster", members.join(", ")));
        }
        let receives = self.from.iter().enumerate();
        words.extend(receives.filter_map(|(index, of)| {
            Some(format!("{} receives from {}", name(index), name((*of)?)))
        }));
        if words.is_empty() {
            "one server".to_owned()
        } else {
            words.join("; ")
        }
    }
}

/// The positions of a shape's servers.
struct Layout<'a> {
    relations: &'a Relations<'a>,
    link: &'a str,
    chain: bool,
    /// Members of the cluster.
    members: usize,
    /// Columns of the widest row.
    widest: u32,
    /// Pixels between the columns.
    gap: u32,
}

impl<'a> Layout<'a> {
    fn of(relations: &'a Relations<'a>, link: &'a str) -> Self {
        let mut layout = Self {
            relations,
            link,
            chain: relations.chain(),
            members: relations.member.iter().filter(|member| **member).count(),
            widest: 1,
            gap: GAP,
        };
        let servers = || 0..relations.all.len();
        let fellows = |index| {
            servers()
                .filter(|other| layout.row(*other) == layout.row(index))
                .count()
        };
        let widest = servers().map(fellows).max();
        let label = servers()
            .map(|index| layout.label(index).chars().count())
            .max();
        // Between neighbors in a row, a label is on the line and needs space there.
        if layout.chain || layout.members > 1 {
            layout.gap = GAP.max(label.unwrap_or(0) as u32 * 7 + 24);
        }
        layout.widest = widest.unwrap_or(1) as u32;
        layout
    }

    fn row(&self, index: usize) -> u32 {
        if self.chain {
            0
        } else {
            self.relations.depth[index]
        }
    }

    fn column(&self, index: usize) -> u32 {
        match index {
            _ if self.chain => index as u32,
            // The server that is written to is above the middle of its replicas.
            0 if self.members < 2 => (self.widest - 1) / 2,
            _ => (0..index)
                .filter(|other| self.row(*other) == self.row(index))
                .count() as u32,
        }
    }

    /// Returns the upper left corner of a server.
    fn place(&self, index: usize) -> (u32, u32) {
        let top = if self.members > 2 { ARCH } else { 4 };
        (
            4 + self.column(index) * (WIDTH + self.gap),
            top + self.row(index) * (HEIGHT + GAP),
        )
    }

    /// Returns how a server receives, and its link's settings.
    fn label(&self, index: usize) -> String {
        let parts = [self.relations.way(index), self.link];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Returns the line to a replica from its source.
    fn channel(&self, index: usize, source: usize) -> LinkPath {
        let ((x, y), (from_x, from_y)) = (self.place(index), self.place(source));
        let middle = y + HEIGHT / 2;
        let (path, label_x, label_y) = if y == from_y {
            let right = from_x + WIDTH;
            let path = format!("M{right} {middle} L{x} {middle}");
            (path, (right + x) / 2, middle - 6)
        } else {
            let (from, to) = (from_x + WIDTH / 2, x + WIDTH / 2);
            let path = format!("M{from} {} L{to} {y}", from_y + HEIGHT);
            (path, to, y - 20)
        };
        LinkPath {
            path,
            both: false,
            label: self.label(index),
            label_x,
            label_y,
        }
    }

    /// Returns the line between two members.
    fn between(&self, one: usize, other: usize) -> LinkPath {
        let ((x, y), (to, _)) = (self.place(one), self.place(other));
        let next = other == one + 1;
        let middle = y + HEIGHT / 2;
        let path = if next {
            format!("M{} {middle} L{to} {middle}", x + WIDTH)
        } else {
            let (from, top, end) = (x + WIDTH / 2, (x + to + WIDTH) / 2, to + WIDTH / 2);
            format!("M{from} {y} Q{top} 0 {end} {y}")
        };
        LinkPath {
            path,
            both: true,
            // Links are equal between all members: one label for each neighbor is enough.
            label: if next { self.label(one) } else { String::new() },
            label_x: (x + WIDTH + to) / 2,
            label_y: middle - 6,
        }
    }

    fn server(&self, index: usize) -> ServerBox {
        let (x, y) = self.place(index);
        let server = self.relations.all[index];
        ServerBox {
            x,
            y,
            name: server.name.clone(),
            role: self.relations.role(index),
            version: server.title(),
            address: server.address.clone(),
        }
    }
}

fn drawing(shape: &str, all: &[&ServerRecord], link: Option<String>) -> Drawing {
    let relations = Relations::of(all);
    let layout = Layout::of(&relations, link.as_deref().unwrap_or_default());
    let channels = relations.from.iter().enumerate();
    let channels = channels.filter_map(|(index, of)| Some(layout.channel(index, (*of)?)));
    let mut lines: Vec<LinkPath> = channels.collect();
    let members: Vec<usize> = (0..all.len())
        .filter(|index| relations.member[*index])
        .collect();
    for (rank, one) in members.iter().enumerate() {
        let others = members[rank + 1..].iter();
        lines.extend(others.map(|other| layout.between(*one, *other)));
    }
    let servers: Vec<ServerBox> = (0..all.len()).map(|index| layout.server(index)).collect();
    let far = |of: fn(&ServerBox) -> u32| servers.iter().map(of).max().unwrap_or(0);
    Drawing {
        shape: shape.to_owned(),
        width: far(|server| server.x) + WIDTH + 4,
        height: far(|server| server.y) + HEIGHT + 4,
        box_width: WIDTH,
        box_height: HEIGHT,
        lines,
        mode: relations.mode(),
        words: relations.words(),
        servers,
        link,
    }
}

#[cfg(test)]
mod tests {
    use replimeter_engine::manifest::complete;

    use super::*;

    fn server(name: &str, address: &str, from: Option<&str>) -> ServerRecord {
        let mut server = ServerRecord {
            shape: "s".to_owned(),
            name: name.to_owned(),
            address: address.to_owned(),
            ..ServerRecord::default()
        };
        if let Some((host, port)) = from.and_then(|from| from.split_once(':')) {
            server
                .replication
                .insert("Master_Host".to_owned(), host.to_owned());
            server
                .replication
                .insert("Master_Port".to_owned(), port.to_owned());
        }
        server
    }

    /// Returns the drawing of servers whose relations were not recorded.
    fn drawn(shape: &str, servers: &[ServerRecord], link: Option<String>) -> Drawing {
        let mut servers = servers.to_vec();
        complete(&mut servers);
        drawing(shape, &servers.iter().collect::<Vec<_>>(), link)
    }

    fn words(shape: &str, servers: &[ServerRecord]) -> (String, usize) {
        let drawing = drawn(shape, servers, None);
        for server in &drawing.servers {
            assert!(
                server.x + WIDTH <= drawing.width && server.y + HEIGHT <= drawing.height,
                "{drawing:?}"
            );
        }
        for (index, one) in drawing.servers.iter().enumerate() {
            assert!(
                drawing.servers[..index]
                    .iter()
                    .all(|other| (other.x, other.y) != (one.x, one.y)),
                "no two overlap"
            );
        }
        (drawing.words, drawing.lines.len())
    }

    #[test]
    fn replicas_are_drawn_below_their_source() {
        let primary = server("db1", "h:1", None);
        let replicas = [
            primary.clone(),
            server("db2", "h:2", Some("h:1")),
            server("db3", "h:3", Some("h:1")),
        ];
        assert_eq!(
            words("endpoints:1", &replicas).0,
            "db2 receives from db1; db3 receives from db1"
        );
        let line = [
            primary.clone(),
            server("db2", "h:2", Some("h:1")),
            server("db3", "h:3", Some("h:2")),
        ];
        assert_eq!(
            words("by hand", &line).0,
            "db2 receives from db1; db3 receives from db2"
        );
        let unknown = [
            primary.clone(),
            server("node2", "h:2", None),
            server("node3", "h:3", None),
        ];
        assert_eq!(
            words("endpoints:1", &unknown).0,
            "node2 receives from db1; node3 receives from db1"
        );
        assert_eq!(words("none", &[primary]), ("one server".to_owned(), 0));
    }

    #[test]
    fn number_names_the_source_of_a_link() {
        let mut servers = [
            server("a", "h:1", None),
            server("b", "h:2", Some("h:9")),
            server("c", "h:3", Some("h:8")),
        ];
        for (index, one) in servers.iter_mut().enumerate() {
            one.variables
                .insert("server_id".to_owned(), (index + 10).to_string());
            if index > 0 {
                one.replication
                    .insert("Master_Server_Id".to_owned(), (index + 9).to_string());
            }
        }
        let drawing = drawn("x", &servers, Some("5ms one way".to_owned()));
        assert_eq!(drawing.words, "b receives from a; c receives from b");
        assert_eq!(drawing.mode, "async in a chain");
        assert_eq!(
            drawing
                .lines
                .iter()
                .map(|line| line.label.as_str())
                .collect::<Vec<_>>(),
            ["async, 5ms one way"; 2]
        );
        assert_eq!(
            drawing
                .servers
                .iter()
                .map(|server| server.role)
                .collect::<Vec<_>>(),
            ["primary", "replica and source", "replica"]
        );
    }

    #[test]
    fn acknowledging_replicas_are_semi_synchronous() {
        let mut servers = [
            server("a", "h:1", None),
            server("b", "h:2", Some("h:1")),
            server("c", "h:3", Some("h:1")),
        ];
        servers[0]
            .variables
            .insert("rpl_semi_sync_source_enabled".to_owned(), "ON".to_owned());
        servers[0].variables.insert(
            "rpl_semi_sync_source_wait_point".to_owned(),
            "AFTER_SYNC".to_owned(),
        );
        servers[1]
            .variables
            .insert("rpl_semi_sync_replica_enabled".to_owned(), "ON".to_owned());
        let drawing = drawn("x", &servers, None);
        assert_eq!(drawing.mode, "semi-sync after-sync");
        assert_eq!(
            drawing
                .lines
                .iter()
                .map(|line| line.label.as_str())
                .collect::<Vec<_>>(),
            ["semi-sync", "async"]
        );
    }

    #[test]
    fn members_are_drawn_in_a_connected_row() {
        let member = |name: &str| {
            let mut member = server(name, name, None);
            for (name, value) in [
                ("wsrep_on", "ON"),
                ("wsrep_provider", "/galera.so"),
                ("wsrep_cluster_name", "c"),
            ] {
                member.variables.insert(name.to_owned(), value.to_owned());
            }
            member
        };
        let members = ["db1", "db2", "db3"].map(member);
        assert_eq!(
            words("endpoints:1", &members),
            ("db1, db2, db3 are members of one cluster".to_owned(), 3)
        );
        assert_eq!(
            words("galera:5", &["a", "b", "c", "d", "e"].map(member)).1,
            10
        );
        let with_replica = [
            member("db1"),
            member("db2"),
            server("far", "h:3", Some("db1:1")),
        ];
        let (text, lines) = words("endpoints:1", &with_replica);
        assert_eq!(
            (text.as_str(), lines),
            (
                "db1, db2 are members of one cluster; far receives from db1",
                2
            )
        );
        assert!(drawings(&Manifest::default()).is_empty());
    }
}
