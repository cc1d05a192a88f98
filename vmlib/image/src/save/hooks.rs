//! Hooks of the program around a save, for state that the program can restore and this library
//! cannot, such as sockets. The task library has hooks of its own (`vmlib::Callbacks`), which it
//! calls within its own calls.

use crate::error::SaveError;
use std::sync::{Mutex, PoisonError};

/// Hooks of a program around a save. Hooks are called in the thread that calls
/// [`save`](crate::save()), outside of every section, while other threads run.
pub trait SaveHooks: Send {
    /// Called before the save checks anything: close or release what cannot be saved.
    ///
    /// # Errors
    /// The reason why the process must not be saved now. The save is refused.
    fn before_save(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Called in the process that runs on, after a save that succeeded or failed.
    fn after_save(&mut self) {}

    /// Called in the restored process.
    fn after_restore(&mut self) {}
}

static ALL: Mutex<Vec<Box<dyn SaveHooks>>> = Mutex::new(Vec::new());

/// Adds hooks. Before a save, hooks are called in the order in which they were added; after a save
/// or restore, in the reverse order.
pub fn register(callbacks: Box<dyn SaveHooks>) {
    ALL.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(callbacks);
}

/// Calls all hooks around a save. `back` says whether the process was restored.
pub(crate) fn around<T>(
    save: impl FnOnce() -> Result<T, SaveError>,
    back: impl FnOnce(&T) -> bool,
) -> Result<T, SaveError> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    for index in 0..all.len() {
        if let Err(why) = all[index].before_save() {
            all[..index]
                .iter_mut()
                .rev()
                .for_each(|each| each.after_save());
            return Err(SaveError::Refused(why));
        }
    }
    let result = save();
    let is_back = result.as_ref().is_ok_and(back);
    for each in all.iter_mut().rev() {
        match is_back {
            true => each.after_restore(),
            false => each.after_save(),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Noted(&'static str, bool, Arc<Mutex<Vec<String>>>);

    impl Noted {
        fn note(&self, what: &str) {
            self.2
                .lock()
                .expect("notes")
                .push(format!("{what} {}", self.0));
        }
    }

    impl SaveHooks for Noted {
        fn before_save(&mut self) -> Result<(), String> {
            self.note("before");
            match self.1 {
                true => Err("not now".to_owned()),
                false => Ok(()),
            }
        }

        fn after_save(&mut self) {
            self.note("after");
        }

        fn after_restore(&mut self) {
            self.note("back");
        }
    }

    #[test]
    fn hooks_run_in_reverse_after_a_save_and_a_refusal_undoes_the_earlier_ones() {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let take = || std::mem::take(&mut *notes.lock().expect("notes"));
        register(Box::new(Noted("a", false, notes.clone())));
        register(Box::new(Noted("b", false, notes.clone())));
        assert_eq!(around(|| Ok(1), |_| false).ok(), Some(1));
        assert_eq!(take(), ["before a", "before b", "after b", "after a"]);
        assert_eq!(around(|| Ok(2), |_| true).ok(), Some(2));
        assert_eq!(take(), ["before a", "before b", "back b", "back a"]);
        register(Box::new(Noted("c", true, notes.clone())));
        let refused = around(|| Ok(3), |_| false).expect_err("c does not want it");
        assert_eq!(refused.to_string(), "this process cannot be saved: not now");
        assert_eq!(
            take(),
            ["before a", "before b", "before c", "after b", "after a"]
        );
    }
}
