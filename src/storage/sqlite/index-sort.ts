/** The entry of the thread that sorts the rows of an index into its file (index-build.ts). */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads'
import { Connection } from './connection.ts'
import { countBuckets } from './index-buckets.ts'
import { tables } from './index-file.ts'
import { syncPathNow } from './page-copy.ts'

/** Memory for pages while the rows are sorted, in kB. */
const SORT_CACHE_KB = 16 * 1024

/** The `workerData` of the thread. */
export interface SortJob {
  /** The path of the file with the rows in the order of the feed. */
  readonly staged: string
  /** The path of the file to write. */
  readonly sorted: string
  readonly indexes: number
}

/** Writes the rows of the staged file to a new file, in their order, and tells when the staged file is open. */
function sort(port: MessagePort, { staged, sorted, indexes }: SortJob): void {
  const file = new Connection(sorted, { isDraft: true })
  // The file is used only when it is complete.
  file.pragma('journal_mode = OFF')
  // The rows may need more memory than there is.
  file.pragma('temp_store = FILE')
  file.pragma(`cache_size = -${SORT_CACHE_KB}`)
  file.prepare('ATTACH ? AS staged').run(staged)
  file.prepare('SELECT * FROM staged.meta').all()
  port.postMessage('opened')
  file.begin()
  file.exec(tables(indexes))
  file.exec('INSERT INTO meta SELECT * FROM staged.meta')
  file.exec('INSERT INTO docs SELECT * FROM staged.docs ORDER BY id')
  for (let index = 0; index < indexes; index++) {
    file.exec(`INSERT INTO rows_${index} SELECT * FROM staged.rows_${index} ORDER BY k`)
    file.exec(countBuckets(index))
  }
  file.commit()
  file.close()
  syncPathNow(sorted)
}

if (parentPort !== null) sort(parentPort, workerData as SortJob)
