//! All sites of the process.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use super::Site;

static SITES: RwLock<Option<HashMap<&'static str, &'static Site>>> = RwLock::new(None);

/// The site of this name, made when first asked for. Sites are never freed: there are as many as call sites.
pub fn site(name: &str) -> &'static Site {
    if let Some(site) = SITES.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|sites| sites.get(name))
    {
        return site;
    }
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
    for site in sites() {
        site.reset();
    }
}
