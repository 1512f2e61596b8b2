/** Compiles the bench's C sources. */
import { spawnSync } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'

const FOLDER = fileURLToPath(new URL('.peers/', import.meta.url))

/**
 * @param source a file of this folder
 * @param output the name of the program or library
 * @returns its path
 * @throws when there is no C compiler
 */
export async function compile(source: string, output: string, ...flags: readonly string[]): Promise<string> {
  await mkdir(FOLDER, { recursive: true })
  const path = FOLDER + output
  const from = fileURLToPath(new URL(source, import.meta.url))
  const { status, stderr } = spawnSync('cc', ['-O2', '-o', path, from, ...flags])
  if (status !== 0) throw new Error(`${source} cannot be compiled: ${stderr ?? 'there is no cc'}`)
  return path
}
