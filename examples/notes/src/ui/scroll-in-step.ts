/** Two panes of the same note scroll together, each to the same share of its height. */

/** @returns a function that ends it */
export function scrollInStep(one: HTMLElement, other: HTMLElement): () => void {
  /** The pane that was scrolled by the other one, until its own event has come. */
  let following: HTMLElement | null = null
  const follow = (from: HTMLElement, to: HTMLElement) => () => {
    if (following === from) {
      following = null
      return
    }
    const [height, range] = [from.scrollHeight - from.clientHeight, to.scrollHeight - to.clientHeight]
    const next = height > 0 ? Math.round((from.scrollTop / height) * range) : 0
    if (Math.abs(next - to.scrollTop) < 2) return
    following = to
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
