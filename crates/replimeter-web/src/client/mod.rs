//! Clients of a site: `ab`, as in the published experiment, and visitors of our own, which keep cookies.

mod ab;
mod alarm;
mod browser;
mod ports;
mod requests;
mod visitor;

pub use self::{
    ab::{Ab, AbResult},
    browser::{Browser, Reply},
    ports::check_ports,
    requests::{Requests, RequestsResult, Visitors},
    visitor::PostingVisitor,
};
use hyper::Method;

/// The type of a form's body.
const FORM: &str = "application/x-www-form-urlencoded";

/// A request of the published experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    path: &'static str,
    /// The form that is posted; a page is requested without one.
    form: Option<&'static str>,
}

/// Adds a post.
pub const INSERT: Request = Request {
    path: "/insert",
    form: Some("title=A+post+about+the+number+34&date=2010-01-01+12%3A00%3A00"),
};
/// Selects posts by a pattern of their title.
pub const SELECT: Request = Request {
    path: "/select",
    form: Some("title=%2534%25&date=1964-12-31+16%3A00%3A00"),
};
/// The newest posts.
pub const PAGE: Request = Request {
    path: "/",
    form: None,
};

impl Request {
    fn method(&self) -> Method {
        if self.form.is_some() {
            Method::POST
        } else {
            Method::GET
        }
    }
}
