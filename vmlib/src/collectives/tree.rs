//! The binomial tree over positions 0 to `n - 1`, with its root at 0.
//!
//! The parent of a position is the position without its lowest bit that is set. The subtree of a
//! position is a range that begins with it.

/// The parent; `None` for the root.
pub(crate) fn parent(at: usize) -> Option<usize> {
    (at != 0).then(|| at & (at - 1))
}

/// The children, by position: the smallest subtree first.
pub(super) fn children(at: usize, n: usize) -> impl DoubleEndedIterator<Item = usize> {
    let bits = match at {
        0 => usize::BITS,
        _ => at.trailing_zeros(),
    };
    let bits = bits.min((n.max(1) - 1).checked_ilog2().map_or(0, |log| log + 1));
    (0..bits)
        .map(move |bit| at + (1 << bit))
        .filter(move |child| *child < n)
}

/// Number of positions in the subtree.
pub(crate) fn subtree(at: usize, n: usize) -> usize {
    match at {
        0 => n,
        _ => (1 << at.trailing_zeros()).min(n - at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_has_one_parent_and_its_subtree_is_a_range() {
        for n in 1..70 {
            for at in 0..n {
                let children: Vec<usize> = children(at, n).collect();
                assert!(children.iter().all(|child| parent(*child) == Some(at)));
                let sizes = children.iter().map(|child| subtree(*child, n));
                assert_eq!(1 + sizes.sum::<usize>(), subtree(at, n), "{at} of {n}");
                let mut next = at + 1;
                for child in children {
                    assert_eq!(child, next);
                    next += subtree(child, n);
                }
            }
        }
    }
}
