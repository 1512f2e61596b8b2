/**
 * A disk that keeps what was synced and nothing else. It follows a record of what a process did: the data of a file
 * become durable when the file is synced, the names in a folder when the folder is. What is still waiting for that
 * when the power goes may be kept or lost, each change by itself and a write in parts: {@link Chance} decides.
 *
 * It is harsher than file systems are: no journal, no order between changes; making a file durable does not make its
 * name so, and a renamed file may have both names, or neither. A sync that fails leaves nothing waiting: a later one
 * does not make up for it, though whoever reads the file in the meantime sees it as it was written.
 */
import { constants } from 'node:fs'
import { dirname } from 'node:path'
import type { RecordedEvent } from './recorder.ts'

/** What becomes of a change that was not synced. */
export interface Chance {
  /** Whether a change of names, a truncation or a whole write is kept. */
  keeps(): boolean
  /** Bytes of which a device keeps all or nothing. */
  readonly sectorBytes: number
  /** Whether this write is kept in parts: each of its sectors by {@link Chance.keeps}. */
  tears(): boolean
  /** What stands in a file where it has grown and nothing was kept. */
  readonly filler: number
  /** One of so many states of a name, the durable one being 0. */
  pick(states: number): number
}

/** Everything that was not synced is lost. */
export const ALL_LOST: Chance = {
  keeps: () => false,
  sectorBytes: 4096,
  tears: () => false,
  filler: 0,
  pick: () => 0,
}

/** Everything is kept: the files as the process itself sees them, unless a sync has failed. */
export const ALL_KEPT: Chance = { ...ALL_LOST, keeps: () => true, pick: (states) => states - 1 }

type Change = { readonly at: number; readonly bytes: Buffer } | { readonly truncated: number }

/** Bytes that grow. */
class Content {
  #bytes = Buffer.alloc(0)
  length = 0

  bytes(): Buffer {
    return this.#bytes.subarray(0, this.length)
  }

  copy(): Content {
    const copy = new Content()
    copy.#bytes = Buffer.from(this.bytes())
    copy.length = this.length
    return copy
  }

  write(at: number, bytes: Buffer, filler: number): void {
    this.#reserve(at + bytes.length)
    if (at > this.length) this.#bytes.fill(filler, this.length, at)
    this.#bytes.set(bytes, at)
    this.length = Math.max(this.length, at + bytes.length)
  }

  truncate(length: number): void {
    this.#reserve(length)
    if (length > this.length) this.#bytes.fill(0, this.length, length)
    this.length = length
  }

  #reserve(length: number): void {
    if (length <= this.#bytes.length) return
    const grown = Buffer.alloc(Math.max(length, 2 * this.#bytes.length))
    grown.set(this.bytes())
    this.#bytes = grown
  }
}

class DiskFile {
  #durable = new Content()
  #waiting: Change[] = []

  change(change: Change): void {
    this.#waiting.push(change)
  }

  sync(): void {
    for (const change of this.#waiting.splice(0)) keep(this.#durable, change, ALL_KEPT)
  }

  failSync(chance: Chance): void {
    for (const change of this.#waiting.splice(0)) keep(this.#durable, change, chance)
  }

  after(chance: Chance): Buffer {
    if (this.#waiting.length === 0 || chance === ALL_LOST) return this.#durable.bytes()
    const content = this.#durable.copy()
    for (const change of this.#waiting) keep(content, change, chance)
    return content.bytes()
  }
}

function keep(content: Content, change: Change, chance: Chance): void {
  if ('truncated' in change) {
    if (chance.keeps()) content.truncate(change.truncated)
  } else if (chance.tears()) {
    for (const part of sectorsOf(change, chance.sectorBytes)) {
      if (chance.keeps()) content.write(part.at, part.bytes, chance.filler)
    }
  } else if (chance.keeps()) content.write(change.at, change.bytes, chance.filler)
}

function* sectorsOf({ at, bytes }: { at: number; bytes: Buffer }, size: number) {
  for (let from = at; from < at + bytes.length; ) {
    const to = Math.min(at + bytes.length, (Math.floor(from / size) + 1) * size)
    yield { at: from, bytes: bytes.subarray(from - at, to - at) }
    from = to
  }
}

type Node = DiskFile | DiskFolder

class DiskFolder {
  /** As the process sees it. */
  readonly seen = new Map<string, Node>()
  readonly #durable = new Map<string, Node>()
  /** What each name has stood for since it was last synced; null for nothing. */
  readonly #waiting = new Map<string, (Node | null)[]>()

  set(name: string, node: Node | null): void {
    if (node === null) this.seen.delete(name)
    else this.seen.set(name, node)
    this.#waiting.set(name, [...(this.#waiting.get(name) ?? []), node])
  }

  sync(): void {
    this.failSync(ALL_KEPT)
  }

  failSync(chance: Chance): void {
    for (const name of [...this.#waiting.keys()]) {
      const node = this.#picked(name, chance)
      this.#waiting.delete(name)
      if (node === null) this.#durable.delete(name)
      else this.#durable.set(name, node)
    }
  }

  *after(chance: Chance): Iterable<[name: string, node: Node]> {
    for (const name of new Set([...this.#durable.keys(), ...this.#waiting.keys()])) {
      const node = this.#picked(name, chance)
      if (node !== null) yield [name, node]
    }
  }

  #picked(name: string, chance: Chance): Node | null {
    const states = [this.#durable.get(name) ?? null, ...(this.#waiting.get(name) ?? [])]
    return states[states.length === 1 ? 0 : chance.pick(states.length)] ?? null
  }
}

/** Files by their paths, and null for folders. */
export type DiskState = Map<string, Buffer | null>

export class Disk {
  readonly #root: string
  readonly #top = new DiskFolder()
  readonly #open = new Map<number, Node>()
  readonly #failing: Chance

  /**
   * @param root the folder that was recorded, which was empty
   * @param failing what a sync that fails keeps of what was waiting
   */
  constructor(root: string, failing: Chance = ALL_LOST) {
    this.#root = root
    this.#failing = failing
  }

  /** Follows one event. @throws Error for one that does not fit to those before */
  apply(event: RecordedEvent): void {
    switch (event.kind) {
      case 'open':
        this.#opened(event.file, event.path, event.flags)
        return
      case 'write':
        this.#file(event.file).change({ at: event.at, bytes: event.bytes })
        return
      case 'truncate':
        this.#file(event.file).change({ truncated: event.length })
        return
      case 'sync':
        if (event.failed) this.#node(event.file).failSync(this.#failing)
        else this.#node(event.file).sync()
        return
      case 'rename':
        this.#renamed(event.path, event.to)
        return
      case 'link':
        this.#set(event.to, this.#known(event.path))
        return
      case 'remove':
        this.#set(event.path, null)
        return
      case 'makeFolder':
        this.#set(event.path, new DiskFolder())
        return
      case 'mark':
    }
  }

  /** What a disk may hold when the power goes now, by paths below the root. */
  after(chance: Chance): DiskState {
    const state: DiskState = new Map()
    const walk = (folder: DiskFolder, path: string) => {
      for (const [name, node] of folder.after(chance)) {
        state.set(path + name, node instanceof DiskFile ? node.after(chance) : null)
        if (node instanceof DiskFolder) walk(node, `${path}${name}/`)
      }
    }
    walk(this.#top, '')
    return state
  }

  #opened(file: number, path: string, flags: number): void {
    const known = this.#find(path)
    const node = known ?? new DiskFile()
    if (known === undefined) {
      if ((flags & constants.O_CREAT) === 0) throw new Error(`${path} was opened and is not on the disk`)
      this.#set(path, node)
    } else if ((flags & constants.O_TRUNC) !== 0 && known instanceof DiskFile) {
      known.change({ truncated: 0 })
    }
    this.#open.set(file, node)
  }

  #renamed(from: string, to: string): void {
    this.#set(to, this.#known(from))
    this.#set(from, null)
  }

  #set(path: string, node: Node | null): void {
    const folder = this.#find(dirname(path))
    if (!(folder instanceof DiskFolder)) throw new Error(`the folder of ${path} is not on the disk`)
    folder.set(path.slice(dirname(path).length + 1), node)
  }

  #find(path: string): Node | undefined {
    let node: Node | undefined = this.#top
    for (const name of path.slice(this.#root.length).split('/').filter(Boolean)) {
      node = node instanceof DiskFolder ? node.seen.get(name) : undefined
    }
    return node
  }

  #known(path: string): Node {
    const node = this.#find(path)
    if (node === undefined) throw new Error(`${path} was given another name and is not on the disk`)
    return node
  }

  #node(file: number): Node {
    const node = this.#open.get(file)
    if (node === undefined) throw new Error(`a file was used that was never opened: ${file}`)
    return node
  }

  #file(file: number): DiskFile {
    const node = this.#node(file)
    if (!(node instanceof DiskFile))
      throw new Error(
        `a folder was written to ${JSON.stringify([...(node as DiskFolder).seen.keys()])} ${file}`,
      )
    return node
  }
}
