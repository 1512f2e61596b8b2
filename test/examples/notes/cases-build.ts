import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Test } from 'tap'
import type { Stage } from './stage.ts'

/** Bytes of all that a first visit loads, compressed. */
const MOST = 150_000

export async function firstLoad(t: Test, { folder }: Stage): Promise<void> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true })
  const sizes = await Promise.all(
    files
      .filter((file) => file.isFile())
      .map(async (file) => gzipSync(await readFile(join(file.parentPath, file.name))).length),
  )
  const total = sizes.reduce((sum, size) => sum + size, 0)
  t.comment(`${total} bytes`)
  t.ok(total < MOST, `${total} bytes`)
}
