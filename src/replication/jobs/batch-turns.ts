/**
 * Which batches run at once: as many as memory allows, with places left for remotes that have none, since the batches of a
 * remote that is slow or silent keep theirs for long.
 */

interface Remote {
  running: number
  /** Batches that wait, by job, in the order of the jobs' turns; no queue is empty. */
  readonly waiting: Map<string, (() => void)[]>
}

export class BatchTurns {
  /** In the order of their turns; only those with batches. */
  readonly #remotes = new Map<string, Remote>()
  #free: number

  /** @param places batches of all jobs at once */
  constructor(places: number) {
    this.#free = places
  }

  /**
   * Runs a batch when its turn has come. The remotes take turns, and so do the jobs of each. A remote has at most as many
   * places as are still free: one alone has half, each of three has a quarter.
   * @param remote what may be slow, such as the origin of a server
   * @returns what the batch returns @throws what it throws
   */
  async run<T>(remote: string, job: string, batch: () => Promise<T>): Promise<T> {
    const entry = this.#remotes.get(remote) ?? { running: 0, waiting: new Map() }
    this.#remotes.set(remote, entry)
    await new Promise<void>((start) => {
      const queue = entry.waiting.get(job)
      if (queue === undefined) entry.waiting.set(job, [start])
      else queue.push(start)
      this.#fill()
    })
    try {
      return await batch()
    } finally {
      entry.running -= 1
      this.#free += 1
      if (entry.running === 0 && entry.waiting.size === 0) this.#remotes.delete(remote)
      this.#fill()
    }
  }

  #fill(): void {
    // A remote that has started a batch goes to the end, and so is seen again.
    for (const [name, remote] of this.#remotes) {
      if (remote.waiting.size === 0 || remote.running >= this.#free) continue
      this.#start(remote)
      this.#remotes.delete(name)
      this.#remotes.set(name, remote)
    }
  }

  #start(remote: Remote): void {
    const [next] = remote.waiting
    if (next === undefined) return
    const [job, queue] = next
    const start = queue.shift()
    remote.waiting.delete(job)
    if (queue.length > 0) remote.waiting.set(job, queue)
    remote.running += 1
    this.#free -= 1
    start?.()
  }
}
