/** The backups: made now or on schedule, verified again, restored from, deleted. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { Badge, Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card, Facts } from '../../parts/page.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { ago, number } from '../../strings/format.ts'
import { BackupList } from './backup-list.tsx'
import { RestoreDialog } from './restore-dialog.tsx'
import { type Backup, type Backups, makeBackup, readBackups, verifyBackup } from './settings-api.ts'

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
        <BackupList
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
