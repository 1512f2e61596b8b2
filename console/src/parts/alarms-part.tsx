/** Alarms about mass deletions: what happened, a way to look at it and back, and dismissal. */
import { ask, pathOf } from '../api/client.ts'
import { useLoad } from '../api/load.ts'
import { user } from '../api/session.ts'
import { hashOf } from '../shell/hash.ts'
import { en } from '../strings/en.ts'
import { exactTime } from '../strings/format.ts'
import { Button, LinkButton } from './button.tsx'
import { confirm } from './confirm.tsx'
import { CopyField } from './copy-field.tsx'
import { ErrorNotice, Notice } from './notice.tsx'
import { say } from './toast.tsx'

interface Alarm {
  readonly id: string
  readonly database: string
  readonly deleted: number
  readonly of: number
  readonly since: string
  readonly until: string
  readonly account: string | null
  readonly device: {
    readonly token: string | null
    readonly client: string
    readonly address: string
  } | null
  /** The command that restores the documents. */
  readonly undo: string
}

const words = en.alarms
const EVERY_MS = 15_000

interface AlarmsPartProps {
  /** Whose alarms are shown; the user administers them. Absent: those of all, for a server admin. */
  readonly databases?: readonly string[]
}

export function AlarmsPart({ databases }: AlarmsPartProps) {
  const { data, failure, reload } = useLoad(
    (signal) => readAlarms(databases, signal),
    JSON.stringify(databases ?? null),
    { every: EVERY_MS },
  )
  if (failure !== null) return <ErrorNotice failure={failure} title={words.notRead} onRetry={reload} />
  if (data === undefined || data.length === 0) return null
  return (
    <section class="stack" aria-label={words.title}>
      <h2>{words.title}</h2>
      {data.map((alarm) => (
        <AlarmNotice key={alarm.id} alarm={alarm} onDismissed={reload} />
      ))}
    </section>
  )
}

interface AlarmList {
  readonly alarms: readonly Alarm[]
}

async function readAlarms(databases: readonly string[] | undefined, signal: AbortSignal): Promise<Alarm[]> {
  const paths =
    databases === undefined
      ? [pathOf('_settee', 'alarms')]
      : databases.map((database) => pathOf('_settee', 'databases', database, 'alarms'))
  const lists = await Promise.all(paths.map((path) => ask<AlarmList>(path, { signal })))
  return lists.flatMap(({ alarms }) => alarms)
}

function AlarmNotice({ alarm, onDismissed }: { readonly alarm: Alarm; readonly onDismissed: () => void }) {
  const { database, deleted, of, since, until } = alarm
  const timeMachine = ['databases', database, 'time-machine']
  const dismiss = () =>
    confirm({
      title: words.dismissTitle,
      effects: [words.dismissEffect(database)],
      undo: words.dismissUndo,
      act: words.dismiss,
      kind: 'primary',
      run: async () => {
        await ask(pathOfAlarm(alarm), { method: 'DELETE' })
        onDismissed()
        say(words.dismissed)
      },
    })
  return (
    <Notice
      tone="bad"
      isAnnounced
      title={words.what(deleted, of, database)}
      actions={
        <>
          <LinkButton kind="primary" isSmall icon="restore" href={hashOf(timeMachine, { at: since })}>
            {words.restore}
          </LinkButton>
          <LinkButton isSmall href={hashOf(timeMachine, { since, until })}>
            {words.look}
          </LinkButton>
          <Button isSmall onClick={dismiss}>
            {words.dismiss}
          </Button>
        </>
      }
    >
      <p>
        {words.when(exactTime(since), exactTime(until))} {who(alarm)}
      </p>
      <p>{words.help}</p>
      <details>
        <summary>{words.commandSummary}</summary>
        <CopyField label={words.command} value={alarm.undo} />
      </details>
    </Notice>
  )
}

/** A server admin sees all alarms by their ids; others, those of a database. */
function pathOfAlarm({ id, database }: Alarm): string {
  return user.value?.isAdmin === true
    ? pathOf('_settee', 'alarms', id)
    : pathOf('_settee', 'databases', database, 'alarms', id)
}

function who({ account, device }: Alarm): string {
  const by = account === null ? words.byNobody : words.by(account)
  if (device === null) return by
  return device.token === null
    ? `${by} ${words.client(device.client, device.address)}`
    : `${by} ${words.device(device.token, device.client, device.address)}`
}
