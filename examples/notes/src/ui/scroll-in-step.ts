/** Two panes of the same note scroll together, each to the same share of its height. */

/** @returns a function that ends it */
export function scrollInStep(one: HTMLElement, other: HTMLElement): () => void {
  /** Where a pane was scrolled to by the other one, until its own event has come. */
  let followed: { readonly pane: HTMLElement; readonly top: number } | null = null
  const follow = (from: HTMLElement, to: HTMLElement) => () => {
    const expected = followed?.pane === from ? followed.top : null
    if (expected !== null) followed = null
    // The user may have scrolled it as well: both make one event.
    if (expected !== null && Math.abs(from.scrollTop - expected) < 2) return
    const [height, range] = [from.scrollHeight - from.clientHeight, to.scrollHeight - to.clientHeight]
    const next = height > 0 ? Math.round((from.scrollTop / height) * range) : 0
    if (Math.abs(next - to.scrollTop) < 2) return
    followed = { pane: to, top: next }
    to.scrollTop = next
  }
  const [down, up] = [follow(one, other), follow(other, one)]
  one.addEventListener('scroll', down, { passive: true })
  other.addEventListener('scroll', up, { passive: true })
  return () => {
    one.removeEventListener('scroll', down)
    other.removeEventListener('scroll', up)
  }
}
