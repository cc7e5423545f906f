//! Replaces the crate of the public certificate authorities.
//!
//! The driver trusts its list in addition to the file that `ssl-ca` names. A company's servers
//! would then be whoever gets a public certificate for their name, or for any name with `verify-ca`.

#![no_std]

use pki_types::{Der, TrustAnchor};

/// One authority that has signed nothing: an empty list is an error. Its key cannot be parsed, so that no
/// signature is valid.
pub const TLS_SERVER_ROOTS: &[TrustAnchor<'static>] = &[TrustAnchor {
    subject: Der::from_slice(&[]),
    subject_public_key_info: Der::from_slice(&[]),
    name_constraints: None,
}];
