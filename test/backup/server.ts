/** Calls of backup tests to a server. */
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Damage } from '../../src/storage/damage.ts'
import type { TestServer } from '../helpers/server.ts'

type Asking = Pick<TestServer, 'request'>

/** The members of a list row that tests check. */
export interface Listed {
  readonly id: string
  readonly verified: boolean
  readonly bytes: number
  readonly new_bytes: number
  readonly databases: number
  readonly left_out: readonly { readonly name: string; readonly reason: string }[]
  readonly damaged: readonly ({ readonly name: string } & Damage)[]
  readonly damage: readonly string[]
}

/** Waits until a backup has ended. @returns its row; undefined if it has failed */
export async function finished(server: Asking, id: string): Promise<Listed | undefined> {
  for (;;) {
    const { json } = await server.request('GET', '/_settee/backups')
    if (json.running === null) return (json.backups as Listed[]).find((backup) => backup.id === id)
    await delay(20)
  }
}

/** Makes a backup and waits for it. */
export async function backUp(server: Asking, databases?: readonly string[]): Promise<Listed | undefined> {
  const { status, json, text } = await server.request('POST', '/_settee/backups', {
    body: databases === undefined ? {} : { databases },
  })
  if (status !== 202) throw new Error(`${status} ${text}`)
  return finished(server, json.id)
}

/** The lines of SHA256SUMS that do not match the files. */
export async function wrongSums(folder: string): Promise<string[]> {
  const wrong: string[] = []
  for (const line of (await readFile(join(folder, 'SHA256SUMS'), 'utf8')).trimEnd().split('\n')) {
    const [sum, file = ''] = line.split('  ')
    const found = createHash('sha256')
      .update(await readFile(join(folder, file)))
      .digest('hex')
    if (found !== sum) wrong.push(line)
  }
  return wrong
}

/** All files below a folder, by their relative paths. */
export async function filesOf(folder: string): Promise<string[]> {
  const found = await readdir(folder, { recursive: true, withFileTypes: true })
  return found
    .filter((file) => file.isFile())
    .map((file) => join(file.parentPath, file.name).slice(folder.length + 1))
    .sort()
}
