//! Numbers for sites, so that C++ can hand one back without a string.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::profile::{self, Site};

#[derive(Default)]
struct Numbers {
    sites: Vec<&'static Site>,
    by_name: HashMap<&'static str, u32>,
}

static NUMBERS: RwLock<Option<Numbers>> = RwLock::new(None);

/// The number of the site of this name; the same name always has the same number.
pub fn intern(name: &str) -> u32 {
    let known = NUMBERS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = known.as_ref().and_then(|numbers| numbers.by_name.get(name)) {
        return *number;
    }
    drop(known);
    let site = profile::site(name);
    let mut numbers = NUMBERS.write().unwrap_or_else(PoisonError::into_inner);
    let numbers = numbers.get_or_insert_with(Numbers::default);
    if let Some(number) = numbers.by_name.get(name) {
        return *number;
    }
    let number = numbers.sites.len() as u32;
    numbers.sites.push(site);
    numbers.by_name.insert(site.name(), number);
    number
}

/// The site of a number that [`intern`] gave.
pub fn site(number: u32) -> Option<&'static Site> {
    let numbers = NUMBERS.read().unwrap_or_else(PoisonError::into_inner);
    numbers.as_ref()?.sites.get(number as usize).copied()
}
