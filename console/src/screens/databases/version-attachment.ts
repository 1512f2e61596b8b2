/** The content of an attachment of an earlier version, as a file. */
import { ask } from '../../api/client.ts'
import { Failure } from '../../api/failure.ts'
import { en } from '../../strings/en.ts'
import { placeOf } from './database-calls.ts'

/** A version comes with the contents of all its attachments, as base64 in one text. In bytes. */
export const MAX_DOWNLOAD = 25_000_000

export interface VersionPlace {
  readonly database: string
  readonly id: string
  readonly rev: string
}

interface VersionWithContents {
  readonly _attachments?: Readonly<Record<string, { readonly data: string }>>
}

/** @throws Failure */
export async function readAttachment(
  { database, id, rev }: VersionPlace,
  name: string,
): Promise<Uint8Array<ArrayBuffer>> {
  const query = { id, rev, attachments: 'true' }
  const version = await ask<VersionWithContents>(placeOf(database, 'version'), { query })
  const data = version._attachments?.[name]?.data
  if (data === undefined) throw new Failure(0, 'not_found', en.databases.timeMachine.notDownloaded, null)
  return Uint8Array.from(atob(data), (character) => character.charCodeAt(0))
}

/** Has the browser save a file, and never show it: its content may be a page with scripts. */
export function saveFile(name: string, content: Blob): void {
  const address = URL.createObjectURL(content)
  const link = document.createElement('a')
  link.href = address
  link.download = name
  link.click()
  // After the click has been handled.
  setTimeout(() => URL.revokeObjectURL(address), 1000)
}
