/** Writes revisions with attachments directly into a store, with any encoding and revpos. */
import { createHash } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import type { BlobReference } from '../../src/storage/blob-leases.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'

export interface TestAttachment {
  readonly name: string
  readonly content: string | Uint8Array
  readonly type?: string
  readonly revpos?: number
  readonly gzip?: boolean
  /** The claimed length, if it differs from the length of the content. */
  readonly length?: number
}

export interface TestRevision {
  readonly rev: string
  /** The ids of the ancestors, newest first. */
  readonly ancestors?: readonly string[]
  /** Whether another revision has superseded it. */
  readonly superseded?: boolean
  readonly deleted?: boolean
  readonly body?: string
  readonly attachments?: readonly TestAttachment[]
}

/** Writes a document; the last revision is its winner. */
export async function storeRevisions(
  store: DatabaseStore,
  id: string,
  ...revisions: readonly TestRevision[]
): Promise<void> {
  const winner = revisions.at(-1) as TestRevision
  const write = {
    rev: winner.rev,
    deleted: winner.deleted ?? false,
    sequenced: true,
    revisions: revisions.map((revision) => ({
      rev: revision.rev,
      deleted: revision.deleted ?? false,
      ancestry: revision.superseded ? null : [idOf(revision.rev), ...(revision.ancestors ?? []).map(idOf)],
      content: {
        body: revision.body ?? '{}',
        attachments: (revision.attachments ?? []).map(attachmentWrite),
      },
    })),
  }
  const [outcome] = await store.updateDocs([{ id, bytes: 0, decide: () => ({ result: null, write }) }])
  if (outcome === undefined || 'error' in outcome) throw outcome?.error
}

function idOf(rev: string): string {
  return rev.slice(rev.indexOf('-') + 1)
}

function attachmentWrite({ name, content, type, revpos, gzip, length }: TestAttachment) {
  const plain = Buffer.from(content as Uint8Array)
  const bytes = gzip ? gzipSync(plain) : plain
  return {
    name,
    type: type ?? 'text/plain',
    revpos: revpos ?? 1,
    digest: digestOf(bytes),
    length: length ?? plain.length,
    encoding: gzip ? ('gzip' as const) : null,
    storedLength: bytes.length,
    content: { sha256: createHash('sha256').update(bytes).digest(), bytes },
  }
}

export function digestOf(bytes: string | Uint8Array): string {
  return `md5-${createHash('md5').update(bytes).digest('base64')}`
}

/** The store, and the number of its pins. */
export function countingPins(store: VersionedStore): { store: VersionedStore; held(): number } {
  let count = 0
  const counted = (pin: BlobReference): BlobReference => {
    let isHeld = true
    count += 1
    return {
      digest: pin.digest,
      length: pin.length,
      release: () => {
        if (isHeld) count -= 1
        isHeld = false
        pin.release()
      },
    }
  }
  const counting = new Proxy(store, {
    get: (target, name) => {
      if (name === 'referenceBlob') {
        return async (blob: number) => {
          const pin = await target.referenceBlob(blob)
          return pin === null ? null : counted(pin)
        }
      }
      const member = Reflect.get(target, name)
      return typeof member === 'function' ? member.bind(target) : member
    },
  })
  return { store: counting, held: () => count }
}
