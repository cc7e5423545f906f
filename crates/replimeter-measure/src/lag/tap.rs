//! tmp
use super::{board::Board, observer::Seen};
use crate::{clock::Clock, survey::Surveyed};
use replimeter_server::{Node, ServerError, facts::Facts};
use std::sync::mpsc::Sender;
pub(super) struct Tap;
impl Tap {
    pub(super) fn open(_: &Node, _: &Facts, _: usize) -> Result<Self, ServerError> {
        Ok(Self)
    }
    pub(super) fn run(self, _: &Clock, _: &Board, _: bool, _: &Sender<Seen>) -> Result<(), ServerError> {
        Ok(())
    }
}
pub(super) fn check(server: &mut Surveyed) -> Result<(), ServerError> {
    Err(server.session.unfit("tap", "tmp", "tmp"))
}
