/**
 * Tells the texts that an editor has sent to its owner from those that the owner sets. A text comes back with the next
 * render, when the user may have typed on.
 */
export class Echoes {
  #sent: string[] = []

  /** Notes a text that the editor sends. */
  send(text: string): void {
    this.#sent.push(text)
  }

  /** @returns whether a text that the owner has rendered is one of those, and not a text that it sets */
  isEcho(text: string): boolean {
    const at = this.#sent.indexOf(text)
    this.#sent = at === -1 ? [] : this.#sent.slice(at)
    return at !== -1
  }
}
