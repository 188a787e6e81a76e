//! All sites of the process.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::Site;

static SITES: RwLock<Option<HashMap<&'static str, &'static Site>>> = RwLock::new(None);

/// Places of [`RECENT`].
const PLACES: usize = 64;

thread_local! {
    /// The sites this thread asked for last, each at a place of its own by [`place`]: call sites repeat, and this saves them
    /// the lock and the hash.
    static RECENT: [Cell<Option<&'static Site>>; PLACES] = const { [const { Cell::new(None) }; PLACES] };
}

/// A place for a name, from its length and its last bytes: names differ at the end, where the argument is.
fn place(name: &str) -> usize {
    let tail = name.as_bytes().iter().rev().take(4).fold(0usize, |sum, byte| sum * 31 + usize::from(*byte));
    (tail + name.len()) % PLACES
}

/// The site of this name, made when first asked for. Sites are never freed: there are as many as call sites.
pub fn site(name: &str) -> &'static Site {
    RECENT.with(|recent| {
        let place = &recent[place(name)];
        match place.get() {
            Some(site) if site.name() == name => site,
            _ => {
                let site = find_or_make(name);
                place.set(Some(site));
                site
            }
        }
    })
}

fn find_or_make(name: &str) -> &'static Site {
    let known = SITES.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(site) = known.as_ref().and_then(|sites| sites.get(name)) {
        return site;
    }
    drop(known);
    let mut sites = SITES.write().unwrap_or_else(PoisonError::into_inner);
    let sites = sites.get_or_insert_with(HashMap::new);
    if let Some(site) = sites.get(name) {
        return site;
    }
    let site: &'static Site = Box::leak(Box::new(Site::new(name)));
    sites.insert(site.name(), site);
    site
}

/// Every site, by name.
pub fn sites() -> Vec<&'static Site> {
    let sites = SITES.read().unwrap_or_else(PoisonError::into_inner);
    let mut all: Vec<_> = sites.iter().flat_map(|sites| sites.values().copied()).collect();
    all.sort_by_key(|site| site.name());
    all
}

/// Sets every counter to zero and forgets the layouts.
pub fn reset() {
    super::graphs::reset();
    for site in sites() {
        site.reset();
    }
}
