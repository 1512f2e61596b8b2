/**
 * What Litestream does to a SQLite file, in a process of its own: it writes a row of its own now and then, holds a
 * transaction open nearly all the time so that nobody else's checkpoint resets the log, makes checkpoints itself, and
 * copies the file with its log. Its one argument is JSON: the files, and the folder that the copies go to.
 */
import { copyFileSync, existsSync, renameSync } from 'node:fs'
import { basename, join } from 'node:path'
import Sqlite from 'better-sqlite3'

const { files, copies } = JSON.parse(process.argv[2] ?? '') as { files: string[]; copies: string }

class Watched {
  readonly #path: string
  readonly #db: Sqlite.Database

  constructor(path: string) {
    this.#path = path
    this.#db = new Sqlite(path, { fileMustExist: true, timeout: 5000 })
    this.#db.exec('CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)')
    this.#hold()
  }

  #hold(): void {
    this.#db.exec('BEGIN')
    this.#db.prepare('SELECT count(*) FROM _litestream_seq').get()
  }

  round(): void {
    // Under its own transaction nobody resets the log: file and log fit together.
    const target = join(copies, basename(this.#path))
    copyFileSync(this.#path, `${target}.next`)
    if (existsSync(`${this.#path}-wal`)) copyFileSync(`${this.#path}-wal`, `${target}.next-wal`)
    renameSync(`${target}.next`, target)
    if (existsSync(`${target}.next-wal`)) renameSync(`${target}.next-wal`, `${target}-wal`)
    this.#db.exec('ROLLBACK')
    this.#db.pragma('wal_checkpoint(PASSIVE)')
    this.#db.exec('INSERT INTO _litestream_seq VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET seq = seq + 1')
    this.#hold()
  }

  close(): void {
    this.#db.close()
  }
}

const watched = files.map((path) => new Watched(path))
let rounds = 0
const timer = setInterval(() => {
  for (const file of watched) file.round()
  rounds += 1
  process.stdout.write(`${rounds}\n`)
}, 20)
process.stdin.on('data', () => undefined)
process.stdin.on('end', () => {
  clearInterval(timer)
  for (const file of watched) file.round()
  for (const file of watched) file.close()
  process.stdout.write('done\n')
})
