//! How much boxes overlap.

/// The share of two boxes' union that both cover; corners may be in any order.
pub(crate) fn intersection_over_union(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let [a, b] = [a, b].map(|c| [c[0].min(c[2]), c[1].min(c[3]), c[0].max(c[2]), c[1].max(c[3])]);
    let area = |c: &[f32; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let (first, second) = (area(&a), area(&b));
    if first <= 0.0 || second <= 0.0 {
        return 0.0;
    }
    let height = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let width = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let both = height * width;
    both / (first + second - both)
}
