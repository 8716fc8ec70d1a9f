//! A page's state in one word, and the transitions between states. No transition waits or makes a
//! call.
//!
//! | state | from | to |
//! |---|---|---|
//! | closed | the beginning | `OPENED` |
//! | open, with users | `OPENED` | `used`, `released`, `closing` |
//! | closing, with users | `closing` | `used_again`, `released`, `reopened`; idle: `closed` |
//!
//! Beside that, a page is private or shared, as the guest last said (`made_private`,
//! `made_shared`). A private page that is still open takes no user, and waits to be closed.

/// The page is open: the devices' threads may touch it. Set and cleared under the table's lock.
const OPEN: u32 = 1 << 31;
/// The page is closing: nobody else may begin to use it. Set and cleared under the table's lock.
const CLOSING: u32 = 1 << 30;
/// The page is private: no device may touch it. Set and cleared under the table's lock.
const PRIVATE: u32 = 1 << 29;
/// The bits with the number of descriptors and rings that use the page.
const USERS: u32 = PRIVATE - 1;

/// A page's state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Word(pub u32);

impl Word {
    /// A page that is not accessible.
    pub const CLOSED: Word = Word(0);
    /// A page that is accessible and has no user.
    pub const OPENED: Word = Word(OPEN);

    /// Returns whether the page is accessible.
    pub fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// Returns whether the guest made the page private.
    pub fn is_private(self) -> bool {
        self.0 & PRIVATE != 0
    }

    /// Returns whether a revocation waits for the page's users.
    pub fn is_closing(self) -> bool {
        self.0 & CLOSING != 0
    }

    /// Returns the number of uses.
    pub fn users(self) -> u32 {
        self.0 & USERS
    }

    /// Adds a user: the hit of a cache. Returns `None` if the page can only be taken under the
    /// table's lock.
    pub fn used(self) -> Option<Word> {
        (self.0 & !USERS == OPEN).then(|| self.used_again())
    }

    /// Adds a use by a thread that uses the page already, even if the page is closing. If that
    /// thread waited for the page's users, it would wait for itself.
    pub fn used_again(self) -> Word {
        debug_assert!(self.is_open() && self.users() < USERS);
        Word(self.0 + 1)
    }

    /// Removes a user.
    pub fn released(self) -> Word {
        debug_assert!(self.is_open() && self.users() > 0);
        Word(self.0 - 1)
    }

    /// Begins a revocation. Returns `None` if the page is closed, or closing already.
    pub fn closing(self) -> Option<Word> {
        (self.is_open() && !self.is_closing()).then_some(Word(self.0 | CLOSING))
    }

    /// Returns whether the page is open and nobody uses it, so that it can be closed.
    pub fn is_idle(self) -> bool {
        self.is_open() && self.users() == 0
    }

    /// Returns whether the page is idle, and a revocation or a conversion waits for that.
    pub fn is_awaited(self) -> bool {
        self.is_idle() && (self.is_closing() || self.is_private())
    }

    /// Makes the page private. A page that is open must be closed next.
    pub fn made_private(self) -> Word {
        Word(self.0 | PRIVATE)
    }

    /// Makes the page shared, so that it can be opened.
    pub fn made_shared(self) -> Word {
        Word(self.0 & !PRIVATE)
    }

    /// Closes the page, which stays private or shared.
    pub fn closed(self) -> Word {
        debug_assert!(self.is_idle());
        Word(self.0 & PRIVATE)
    }

    /// Undoes a revocation that could not close the page.
    pub fn reopened(self) -> Word {
        Word(self.0 & !CLOSING)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_closed_page_has_no_user() {
        assert_eq!(Word::CLOSED.used(), None);
        assert_eq!(Word::CLOSED.closing(), None);
        assert!(!Word::CLOSED.is_idle());
    }

    #[test]
    fn a_closing_page_takes_no_new_user_and_waits_for_the_old_ones() {
        let closing = Word::OPENED.used().unwrap().closing().unwrap();
        assert_eq!((closing.used(), closing.closing()), (None, None));
        assert!(!closing.is_idle());
        let again = closing.used_again();
        assert_eq!(again.users(), 2);
        assert!(again.released().released().is_idle());
        assert!(closing.reopened().used().is_some());
    }

    #[test]
    fn a_private_page_takes_no_new_user_and_stays_private_when_it_is_closed() {
        let private = Word::OPENED.used().unwrap().made_private();
        assert_eq!((private.used(), private.is_awaited()), (None, false));
        let idle = private.released();
        assert!(idle.is_awaited() && idle.closed().is_private() && !idle.closed().is_open());
        assert_eq!(idle.closed().made_shared(), Word::CLOSED);
        assert!(!Word::OPENED.is_awaited());
    }

    proptest! {
        /// Words agree with a reference of four plain variables after any sequence of steps.
        #[test]
        fn words_do_as_four_variables(steps in prop::collection::vec(0..8u8, 0..200)) {
            let (mut word, mut open, mut closing, mut users) = (Word::CLOSED, false, false, 0u32);
            let mut private = false;
            for step in steps {
                match step {
                    0 if !open && !private => (word, open) = (Word::OPENED, true),
                    1 => {
                        let used = word.used();
                        prop_assert_eq!(used.is_some(), open && !closing && !private);
                        users += u32::from(used.is_some());
                        word = used.unwrap_or(word);
                    }
                    2 if users > 0 => (word, users) = (word.released(), users - 1),
                    3 => {
                        let next = word.closing();
                        prop_assert_eq!(next.is_some(), open && !closing);
                        closing |= next.is_some();
                        word = next.unwrap_or(word);
                    }
                    4 if word.is_awaited() => {
                        prop_assert!(users == 0 && (closing || private));
                        (word, open, closing) = (word.closed(), false, false);
                    }
                    5 if users > 0 => (word, users) = (word.used_again(), users + 1),
                    6 => (word, private) = (word.made_private(), true),
                    7 => (word, private) = (word.made_shared(), false),
                    _ => {}
                }
                prop_assert_eq!((word.is_open(), word.is_closing()), (open, closing));
                prop_assert_eq!((word.users(), word.is_private()), (users, private));
                prop_assert!(open || users == 0, "a user of a closed page");
            }
        }
    }
}
