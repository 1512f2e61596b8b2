import { writeAtomically } from '../core/durable-files.ts'
import { CouchError } from '../core/errors.ts'
import { parseIni } from './ini-file.ts'
import { readIniText } from './sources.ts'

/** The file local.ini of a data folder, as it is on disk. */
export class LocalIniFile {
  /** The first change creates the file. */
  readonly path: string
  /** Whether a write has failed, so that the text may not be on disk. */
  #isUncertain = false

  constructor(path: string) {
    this.path = path
  }

  /** @returns the key's value as it is on disk now; undefined if it is not there */
  async stored(section: string, key: string): Promise<string | undefined> {
    return parseIni(await readIniText(this.path))
      .get(section)
      ?.get(key)
  }

  /**
   * Edits the file as it is now, so that changes by hand are kept. Calls must not overlap.
   * @throws insufficient_storage, internal_server_error
   */
  async edit(change: (text: string) => string): Promise<void> {
    try {
      const text = await readIniText(this.path)
      const changed = change(text)
      if (changed === text && !this.#isUncertain) return
      await writeAtomically(this.path, changed)
      this.#isUncertain = false
    } catch (error) {
      this.#isUncertain = true
      throw writeFailure(error)
    }
  }
}

function writeFailure(error: unknown): CouchError {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new CouchError('insufficient_storage', undefined, { cause: error })
  }
  const reason = `The configuration cannot be written to local.ini (${code ?? 'unknown error'}); nothing has changed.`
  return new CouchError('internal_server_error', reason, { cause: error })
}
