/** The last verified backup, and what this server is. */
import { ask, serverAddress } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { server } from '../../api/session.ts'
import { LinkButton } from '../../parts/button.tsx'
import { Badge, Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card, Facts } from '../../parts/page.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { ago, bytes, duration, percent, time } from '../../strings/format.ts'

interface Backup {
  readonly id: string
  readonly begun_at: string
  readonly verified: boolean
  readonly is_whole: boolean
  readonly databases: number
  readonly bytes: number
}

interface Backups {
  readonly backups: readonly Backup[]
  readonly running: { readonly percent: number } | null
  readonly last_failure: { readonly time: string; readonly reason: string } | null
}

const { backups: words, server: facts } = en.overview
const EVERY_MS = 60_000

export function BackupPart() {
  const { data, failure, reload } = useLoad(
    (signal) => ask<Backups>('_settee/backups', { signal }),
    'backups',
    {
      every: EVERY_MS,
    },
  )
  return (
    <Card
      title={words.title}
      actions={
        <LinkButton isSmall href={hashOf(['settings', 'backups'])}>
          {words.all}
        </LinkButton>
      }
    >
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {data === undefined ? failure === null && <Skeleton lines={3} /> : <LastBackup backups={data} />}
    </Card>
  )
}

function LastBackup({
  backups: { backups, running, last_failure: lastFailure },
}: {
  readonly backups: Backups
}) {
  const verified = backups.filter((each) => each.verified)
  const last = verified.find((each) => each.is_whole) ?? verified[0]
  // A failure counts until a later backup has worked.
  const isFailing = lastFailure !== null && (last === undefined || lastFailure.time > last.begun_at)
  return (
    <>
      {running !== null && <p class="soft">{words.running(percent(running.percent / 100))}</p>}
      {isFailing && (
        <Notice tone="bad" title={words.failed(ago(lastFailure.time))}>
          <p>{lastFailure.reason}</p>
        </Notice>
      )}
      {last === undefined ? (
        <Empty title={words.none} icon="restore">
          {words.noneHelp}
        </Empty>
      ) : (
        <>
          <p class="big-fact">
            <span>{ago(last.begun_at)}</span> <Badge tone="good">{words.verified}</Badge>
          </p>
          <Facts
            facts={[
              { term: words.time, value: time(last.begun_at) },
              { term: words.content, value: en.words.databases(last.databases) },
              { term: words.size, value: bytes(last.bytes) },
            ]}
          />
        </>
      )}
    </>
  )
}

interface System {
  /** Seconds. */
  readonly uptime: number
}

export function ServerPart() {
  const { data, failure } = useLoad((signal) => ask<System>('_node/_local/_system', { signal }), 'system', {
    every: EVERY_MS,
  })
  const { version = '', couchVersion = '', uuid = '', isHosted = false } = server.value ?? {}
  return (
    <Card title={facts.title}>
      <Facts
        facts={[
          { term: facts.version, value: version },
          { term: facts.couchVersion, value: couchVersion },
          {
            term: facts.uptime,
            value: data === undefined ? (failure === null ? '…' : facts.unknown) : duration(data.uptime),
          },
          { term: facts.mode, value: isHosted ? facts.hosted : facts.single },
          { term: facts.address, value: serverAddress() },
          { term: facts.uuid, value: <code>{uuid}</code> },
        ]}
      />
    </Card>
  )
}
