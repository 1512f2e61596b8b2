/** The backups: made now or on schedule, verified again, restored from, deleted. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Badge, Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card, Facts } from '../../parts/page.tsx'
import { type Column, DataTable } from '../../parts/table.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { ago, bytes, number, time } from '../../strings/format.ts'
import { RestoreDialog } from './restore-dialog.tsx'
import {
  type Backup,
  type Backups,
  deleteBackup,
  makeBackup,
  readBackups,
  verifyBackup,
} from './settings-api.ts'

const { backups: texts } = en.settings

/** How often the list is read while something goes on, and otherwise, in ms. */
const BUSY_MS = 1000
const IDLE_MS = 15_000

export default function BackupsPart() {
  const [isBusy, setBusy] = useState(false)
  const { data, failure, reload } = useLoad(readBackups, 'backups', { every: isBusy ? BUSY_MS : IDLE_MS })
  const [refusal, setRefusal] = useState<{ readonly title: string; readonly failure: Failure } | null>(null)
  const [restored, setRestored] = useState<Backup | null>(null)
  const goesOn = data !== undefined && (data.running !== null || data.verifying !== null)
  useEffect(() => setBusy(goesOn), [goesOn])
  const { damaged, expect } = useVerificationNews(data)
  const run = (title: string, act: Promise<void>, done: string) => {
    setRefusal(null)
    act.then(
      () => {
        say(done)
        reload()
      },
      (error: unknown) => setRefusal({ title, failure: asFailure(error) }),
    )
  }
  const make = () => run(texts.notMade, makeBackup(), texts.made)
  const makeButton = (
    <Button
      kind="primary"
      icon="plus"
      isBusy={data?.running != null}
      disabled={data === undefined}
      onClick={make}
    >
      {texts.make}
    </Button>
  )
  return (
    <>
      <Card title={en.settings.tabs.backups} lead={texts.lead} actions={makeButton}>
        <Schedule />
        {data !== undefined && <Progress backups={data} />}
      </Card>
      {data?.last_failure != null && (
        <Notice tone="bad" title={`${texts.failed} (${ago(data.last_failure.time)})`}>
          <p>{data.last_failure.reason}</p>
        </Notice>
      )}
      {damaged !== null && (
        <Notice tone="bad" title={texts.foundDamage(damaged)} isAnnounced>
          <p>{texts.damageHelp}</p>
        </Notice>
      )}
      {refusal !== null && <ErrorNotice failure={refusal.failure} title={refusal.title} />}
      {failure !== null && <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />}
      {data === undefined && failure === null && <Skeleton lines={6} />}
      {data?.backups.length === 0 && data.running === null && <NoBackups make={make} />}
      {data !== undefined && data.backups.length > 0 && (
        <List
          backups={data}
          onVerify={(id) =>
            run(
              texts.notVerified,
              verifyBackup(id).then(() => expect(id)),
              texts.verifyBegun,
            )
          }
          onRestore={setRestored}
          onDeleted={reload}
        />
      )}
      {restored !== null && <RestoreDialog backup={restored} onClose={() => setRestored(null)} />}
    </>
  )
}

/**
 * Says how a verification has ended that the user has begun, or has seen going on.
 * @returns the backup that turned out to be damaged, null: none; and what to call when one has begun, which may be over
 *   when the list is read next
 */
function useVerificationNews(data: Backups | undefined): {
  readonly damaged: string | null
  expect(id: string): void
} {
  const before = useRef<string | null>(null)
  const [damaged, setDamaged] = useState<string | null>(null)
  useEffect(() => {
    if (data === undefined) return
    const id = before.current
    before.current = data.verifying?.id ?? null
    const backup = data.backups.find((each) => each.id === id)
    if (id === null || before.current === id || backup === undefined) return
    if (backup.verified) say(texts.verifiedNow)
    setDamaged(backup.verified ? null : id)
  }, [data])
  const isThere = data?.backups.some(({ id }) => id === damaged) ?? false
  return {
    damaged: isThere ? damaged : null,
    expect: (id) => {
      before.current = id
    },
  }
}

type Keys = Readonly<Record<string, string | undefined>>

/** What the server does by itself. */
function Schedule() {
  const { data, failure } = useLoad(
    (signal) => ask<Keys>(pathOf('_node', '_local', '_config', 'settee'), { signal }),
    'schedule',
  )
  if (data === undefined) return failure === null ? <Skeleton lines={2} /> : null
  const hours = Number(data.backup_interval ?? 0)
  const link = <a href={hashOf(['settings'], { group: 'backups' })}>{texts.change}</a>
  return (
    <Facts
      facts={[
        {
          term: texts.schedule,
          value: (
            <>
              {hours === 0 ? <Badge tone="warn">{texts.never}</Badge> : texts.every(hours)} {link}
            </>
          ),
        },
        { term: texts.folder, value: data.backup_folder || texts.folderDefault },
        {
          term: texts.kept,
          value: texts.keptText(Number(data.backup_keep_daily ?? 7), Number(data.backup_keep_weekly ?? 4)),
        },
      ]}
    />
  )
}

function Progress({ backups: { running, verifying } }: { readonly backups: Backups }) {
  if (running === null && verifying === null) return null
  return (
    <div role="status" class="stack">
      {running !== null && (
        <Bar
          text={texts.running(running.databases_done, running.databases_total)}
          percent={running.percent}
        />
      )}
      {verifying !== null && <Bar text={texts.verifying(verifying.id)} percent={verifying.percent} />}
    </div>
  )
}

function Bar({ text, percent }: { readonly text: string; readonly percent: number }) {
  return (
    <div class="progress">
      <p>
        {text} <span class="soft">{number(percent)} %</span>
      </p>
      <progress max={100} value={percent} aria-label={`${texts.progress}: ${text}`} />
    </div>
  )
}

function NoBackups({ make }: { readonly make: () => void }) {
  return (
    <Card>
      <Empty
        icon="restore"
        title={texts.none}
        action={
          <>
            <Button icon="plus" onClick={make}>
              {texts.make}
            </Button>
            <a class="button is-plain" href={hashOf(['settings'], { group: 'backups' })}>
              {texts.setSchedule}
            </a>
          </>
        }
      >
        {texts.noneHelp}
      </Empty>
    </Card>
  )
}

interface ListProps {
  readonly backups: Backups
  readonly onVerify: (id: string) => void
  readonly onRestore: (backup: Backup) => void
  readonly onDeleted: () => void
}

function List({ backups: { backups, verifying }, onVerify, onRestore, onDeleted }: ListProps) {
  const newestGood = backups.find((each) => each.verified && each.is_whole)?.id
  const columns: readonly Column<Backup>[] = [
    {
      key: 'when',
      title: texts.when,
      isMain: true,
      cell: ({ begun_at: at, id }) => (
        <div class="backup-cell" title={id}>
          {time(at)}
          <p class="fine">{ago(at)}</p>
        </div>
      ),
    },
    { key: 'holds', title: texts.holds, cell: (backup) => <Holds backup={backup} /> },
    { key: 'size', title: texts.size, isNumber: true, cell: (backup) => <Size backup={backup} /> },
    { key: 'state', title: texts.state, cell: (backup) => <State backup={backup} /> },
    {
      key: 'actions',
      title: texts.actions,
      isUntitled: true,
      cell: (backup) => (
        <div class="row is-end backup-actions">
          <Button
            isSmall
            icon="check"
            label={texts.verifyOf(backup.id)}
            isBusy={verifying?.id === backup.id}
            disabled={verifying !== null && verifying.id !== backup.id}
            onClick={() => onVerify(backup.id)}
          >
            {texts.verify}
          </Button>
          <Button
            isSmall
            icon="restore"
            label={texts.restoreOf(backup.id)}
            disabled={backup.databases === 0}
            onClick={() => onRestore(backup)}
          >
            {texts.restore}
          </Button>
          <Button
            isSmall
            kind="danger"
            icon="trash"
            label={texts.deleteOf(backup.id)}
            onClick={() => askToDelete(backup, backup.id === newestGood, onDeleted)}
          />
        </div>
      ),
    },
  ]
  return (
    <Card isFlush>
      <DataTable caption={texts.list} columns={columns} rows={backups} keyOf={({ id }) => id} />
    </Card>
  )
}

function Holds({ backup }: { readonly backup: Backup }) {
  return (
    <div class="backup-cell">
      {en.words.databases(backup.databases)}
      <p class="fine">{backup.is_whole ? texts.whole : texts.some}</p>
    </div>
  )
}

function Size({ backup }: { readonly backup: Backup }) {
  const isShared = backup.new_bytes < backup.bytes
  return (
    <div title={isShared ? texts.newBytesHint : undefined}>
      {bytes(backup.bytes)}
      {isShared && <p class="fine">{texts.newBytes(bytes(backup.new_bytes))}</p>}
    </div>
  )
}

function State({
  backup: { verified, verified_at: at, damage, left_out: leftOut },
}: {
  readonly backup: Backup
}) {
  return (
    <div class="backup-state">
      <p>
        <Badge tone={verified ? 'good' : 'bad'}>{verified ? texts.verified : texts.damaged}</Badge>{' '}
        {leftOut.length > 0 && <Badge tone="warn">{texts.incomplete}</Badge>}
      </p>
      <p class="fine">{verified ? ago(at) : texts.verifiedAt(ago(at))}</p>
      {damage.map((line) => (
        <p key={line} class="fine is-code">
          {line}
        </p>
      ))}
      {leftOut.map(({ name, reason }) => (
        <p key={name} class="fine">
          {texts.leftOut(name, reason)}
        </p>
      ))}
    </div>
  )
}

function askToDelete(backup: Backup, isNewest: boolean, onDeleted: () => void): void {
  const { id } = backup
  confirm({
    title: texts.deleteTitle(id),
    effects: [...texts.deleteEffects(bytes(backup.new_bytes)), ...(isNewest ? [texts.deleteNewest] : [])],
    undo: null,
    typed: id,
    act: texts.delete,
    run: async () => {
      await deleteBackup(id)
      say(texts.deleted(id))
      onDeleted()
    },
  })
}
