/** This server in the pair of a primary and its standby. */
import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { user } from '../../api/session.ts'
import { CopyField } from '../../parts/copy-field.tsx'
import { Badge, Empty, ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card, Facts } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import { ago, duration, number } from '../../strings/format.ts'

const { standby: texts } = en.replication

interface Standby {
  readonly role: 'none' | 'first' | 'standby'
  readonly state: 'none' | 'following' | 'halted' | 'promoting'
  readonly first: string | null
  readonly lag: number | null
  readonly max_lag: number
  readonly databases: number
  readonly waiting: number
  readonly refused: number
  readonly reason: string | null
  readonly failures: readonly { readonly database: string; readonly reason: string }[]
  readonly followers: readonly { readonly address: string; readonly last_seen: string }[]
}

/** In ms. */
const EVERY_MS = 3000

export function StandbyPart() {
  const { data, failure, reload } = useLoad(
    (signal) => ask<Standby>('_settee/standby', { signal }),
    'standby',
    { every: EVERY_MS },
  )
  if (data === undefined) {
    return failure === null ? <Skeleton lines={6} /> : <ErrorNotice failure={failure} onRetry={reload} />
  }
  return (
    <>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {data.role === 'standby' ? (
        <Following standby={data} />
      ) : data.role === 'first' ? (
        <Followed standby={data} />
      ) : (
        <None />
      )}
    </>
  )
}

function Following({ standby }: { readonly standby: Standby }) {
  const {
    state,
    first: primary,
    lag,
    max_lag: maxLag,
    databases,
    waiting,
    refused,
    reason,
    failures,
  } = standby
  const isLate = lag !== null && lag > maxLag
  const tone = state !== 'following' || refused > 0 ? 'bad' : lag === null || isLate ? 'warn' : 'good'
  return (
    <>
      <Card title={texts.title(primary?.replace(/\/$/, '') ?? '')} lead={texts.lead}>
        <Facts
          facts={[
            { term: texts.state, value: <Badge tone={tone}>{texts.states[state]}</Badge> },
            { term: texts.lag, value: lag === null ? texts.noLag : duration(Math.max(lag, 0.1)) },
            { term: texts.databases, value: number(databases) },
            { term: texts.waiting, value: number(waiting) },
            { term: texts.refused, value: number(refused) },
          ]}
        />
        {state === 'halted' && (
          <Notice tone="bad" title={texts.halted} isAnnounced>
            <p class="reason">{reason}</p>
            <p>{texts.haltedHelp}</p>
          </Notice>
        )}
        {state === 'following' && reason !== null && (
          <Notice tone="warn" title={texts.trouble}>
            <p class="reason">{reason}</p>
          </Notice>
        )}
        {isLate && state === 'following' && <Notice tone="warn">{texts.late(duration(maxLag))}</Notice>}
        {lag === null && state === 'following' && <Notice tone="info">{texts.initialCopy}</Notice>}
        {refused > 0 && <Notice tone="bad">{texts.refusedHelp}</Notice>}
        {failures.length > 0 && (
          <ul class="failures">
            {failures.map(({ database, reason: why }) => (
              <li key={database}>
                <strong>{database}</strong> <span class="reason">{why}</span>
              </li>
            ))}
          </ul>
        )}
      </Card>
      <Card title={texts.commands} lead={texts.commandsLead}>
        <p>{texts.promoteHelp}</p>
        <CopyField label={texts.promote} value="settee promote" />
        {state === 'halted' && (
          <>
            <p>{texts.againHelp}</p>
            <CopyField label={texts.again} value="settee follow --again" />
          </>
        )}
      </Card>
    </>
  )
}

function Followed({ standby: { followers } }: { readonly standby: Standby }) {
  return (
    <Card title={texts.primaryTitle} lead={texts.primaryLead}>
      <ul class="failures">
        {followers.map(({ address, last_seen: seen }) => (
          <li key={address}>
            <strong>{address}</strong> <span class="fine">{texts.seen(ago(seen))}</span>
          </li>
        ))}
      </ul>
      <p class="fine">{texts.primaryHelp}</p>
    </Card>
  )
}

function None() {
  return (
    <>
      <Card>
        <Empty icon="restore" title={texts.none}>
          {texts.noneHelp}
        </Empty>
      </Card>
      <Card title={texts.setUp} lead={texts.setUpLead}>
        <ol class="next-steps">
          {texts.steps.map((step) => (
            <li key={step}>{step}</li>
          ))}
        </ol>
        <CopyField label={texts.follow} value={`settee follow ${exampleAddress()}`} />
      </Card>
    </>
  )
}

/** This server as another machine may reach it; the command asks for the password. */
function exampleAddress(): string {
  const { protocol, hostname, host, port } = location
  const isHere = /^(?:localhost|127\.|\[::1\])/.test(hostname)
  const place = isHere ? `${texts.thisServer}${port === '' ? '' : `:${port}`}` : host
  return `${protocol}//${encodeURIComponent(user.value?.name ?? '')}@${place}`
}
