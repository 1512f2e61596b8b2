/** What the server is working on: compactions, backups, rewinds, replications. */
import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { Meter } from '../../parts/meter.tsx'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { ago, percent } from '../../strings/format.ts'

/** A task of `_active_tasks`. */
interface Task {
  readonly type: string
  readonly pid: string
  readonly database?: string | null
  readonly source?: string
  readonly target?: string
  readonly continuous?: boolean
  /** In percent. */
  readonly progress?: number
  /** Seconds since 1970. */
  readonly started_on: number
}

const { tasks: words } = en.overview
const EVERY_MS = 5000
/** A server may run thousands of replications, which have a page of their own. */
const MAX_SHOWN = 12

export function TasksPart() {
  const { data, failure, reload } = useLoad(
    (signal) => ask<readonly Task[]>('_active_tasks', { signal }),
    'tasks',
    {
      every: EVERY_MS,
    },
  )
  return (
    <Card title={words.title}>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton lines={2} />}
      {data?.length === 0 && <p class="soft">{words.none}</p>}
      {data !== undefined && data.length > 0 && (
        <ul class="tasks">
          {data.slice(0, MAX_SHOWN).map((task) => (
            <TaskRow key={`${task.type} ${task.pid}`} task={task} />
          ))}
          {data.length > MAX_SHOWN && <li class="soft">{words.others(data.length - MAX_SHOWN)}</li>}
        </ul>
      )}
    </Card>
  )
}

function TaskRow({ task }: { readonly task: Task }) {
  const name = nameOf(task)
  const { progress, started_on } = task
  return (
    <li>
      <div class="task-head">
        <strong>{name}</strong>
        <span class="fine">
          {words.begun(ago(started_on * 1000))}
          {progress !== undefined && ` · ${percent(progress / 100)}`}
        </span>
      </div>
      {progress !== undefined && <Meter label={name} value={progress} max={100} warnAt={2} />}
    </li>
  )
}

function nameOf({ type, database, source = '', target = '', continuous = false }: Task): string {
  switch (type) {
    case 'database_compaction':
      return words.compaction(database ?? '')
    case 'database_rewind':
      return words.rewind(database ?? '')
    case 'backup':
      return database == null ? words.backup : words.backupOf(database)
    case 'move':
      return database == null ? words.move(source) : words.moveOf(source, database)
    case 'replication':
      return continuous ? words.continuous(source, target) : words.replication(source, target)
    default:
      return words.other(type, database ?? '')
  }
}
