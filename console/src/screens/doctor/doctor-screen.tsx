/** The doctor: what apps would notice of this server, seen from this page. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, serverAddress } from '../../api/client.ts'
import { asFailure, type Failure, isAborted } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { user } from '../../api/session.ts'
import { Button } from '../../parts/button.tsx'
import { CopyButton, CopyField } from '../../parts/copy-field.tsx'
import { CheckField, SelectField } from '../../parts/field.tsx'
import { Icon } from '../../parts/icon.tsx'
import { Meter } from '../../parts/meter.tsx'
import { Badge, ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import { Card, Page } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'
import './doctor.css'
import { byUrgency, type CheckName, type Finding, reportOf, type State } from './finding.ts'
import { CHECKS, runChecks } from './run.ts'

const { doctor: words } = en
/** How many databases are offered. */
const MAX_OFFERED = 200

interface DatabasePage {
  readonly databases: readonly { readonly name: string; readonly role?: string }[]
}

export default function DoctorScreen() {
  const { data, failure, reload } = useLoad(
    (signal) => ask<DatabasePage>('_settee/databases', { query: { limit: String(MAX_OFFERED) }, signal }),
    'databases',
  )
  return (
    <Page title={words.title} lead={words.lead}>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {data === undefined ? failure === null && <Skeleton lines={4} /> : <Doctor names={namesOf(data)} />}
    </Page>
  )
}

/** Databases of the server itself come last: no app syncs with them. */
function namesOf({ databases }: DatabasePage): string[] {
  const names = databases.filter(({ role }) => role !== 'none').map(({ name }) => name)
  const isOwn = (name: string) => name.startsWith('_')
  return [...names.filter((name) => !isOwn(name)), ...names.filter(isOwn)]
}

interface Progress {
  readonly findings: readonly Finding[]
  /** The check under way. */
  readonly current: CheckName | null
  readonly state: 'idle' | 'running' | 'done' | 'cancelled'
  readonly failure: Failure | null
}

const IDLE: Progress = { findings: [], current: null, state: 'idle', failure: null }

function Doctor({ names }: { readonly names: readonly string[] }) {
  const [database, setDatabase] = useState(names[0] ?? '')
  const [isLong, setLong] = useState(false)
  const [progress, setProgress] = useState(IDLE)
  const running = useRef<AbortController | null>(null)
  useEffect(() => () => running.current?.abort(), [])
  const run = () => {
    const controller = new AbortController()
    running.current = controller
    setProgress({ ...IDLE, state: 'running' })
    const options = { database: database || null, isLong, signal: controller.signal }
    void collect(options, setProgress)
  }
  const isRunning = progress.state === 'running'
  return (
    <>
      <Card>
        <form
          class="doctor-form"
          onSubmit={(event) => {
            event.preventDefault()
            if (!isRunning) run()
          }}
        >
          {names.length > 0 && (
            <SelectField
              label={words.database}
              hint={words.databaseHint}
              value={database}
              options={names.map((name) => [name, name])}
              onChange={setDatabase}
            />
          )}
          <CheckField label={words.long} hint={words.longHint} isOn={isLong} onChange={setLong} />
          <div class="actions">
            <Button kind="primary" type="submit" icon="doctor" disabled={isRunning}>
              {progress.state === 'idle' ? words.run : words.runAgain}
            </Button>
            {isRunning && <Button onClick={() => running.current?.abort()}>{en.common.cancel}</Button>}
          </div>
        </form>
      </Card>
      <Results progress={progress} />
      <Card title={words.restTitle} lead={words.rest}>
        <CopyField label={words.command} value={commandFor(database)} />
      </Card>
    </>
  )
}

interface CollectOptions {
  readonly database: string | null
  readonly isLong: boolean
  readonly signal: AbortSignal
}

type Change = (change: (before: Progress) => Progress) => void

/** Runs the checks and reports their progress. Never rejects. */
async function collect(options: CollectOptions, onProgress: Change): Promise<void> {
  const { name: account = '', isAdmin = false } = user.value ?? {}
  try {
    for await (const step of runChecks({ ...options, account, isAdmin })) {
      onProgress((before) =>
        'begins' in step
          ? { ...before, current: step.begins }
          : { ...before, findings: [...before.findings, step.finding] },
      )
    }
    onProgress((before) => ({ ...before, current: null, state: 'done' }))
  } catch (error) {
    const failure = options.signal.aborted || isAborted(error) ? null : asFailure(error)
    onProgress((before) => ({ ...before, current: null, state: 'cancelled', failure }))
  }
}

function Results({ progress: { findings, current, state, failure } }: { readonly progress: Progress }) {
  if (state === 'idle') return null
  const summary = state === 'running' ? words.checking(current ?? 'server') : summaryOf(findings, state)
  return (
    <Card
      title={words.results}
      {...(state !== 'running' && {
        actions: <CopyButton label={words.report} value={reportOf(findings)} />,
      })}
    >
      <p role="status" class="doctor-summary">
        {summary}
      </p>
      {state === 'running' && (
        <Meter label={words.progress} value={findings.length} max={CHECKS} warnAt={2} />
      )}
      {failure !== null && <ErrorNotice failure={failure} />}
      <ul class="findings">
        {(state === 'running' ? findings : byUrgency(findings)).map((finding) => (
          <FindingRow key={finding.name} finding={finding} />
        ))}
      </ul>
    </Card>
  )
}

function summaryOf(findings: readonly Finding[], state: 'done' | 'cancelled'): string {
  const number = (wanted: State) => findings.filter((each) => each.state === wanted).length
  if (state === 'cancelled') return words.cancelled
  return words.summary(number('wrong'), number('note'))
}

const TONES = { fine: 'good', note: 'warn', wrong: 'bad', skipped: 'plain' } as const
const ICONS = { fine: 'check', note: 'warning', wrong: 'error', skipped: 'info' } as const

function FindingRow({ finding: { name, state, text, help, cures } }: { readonly finding: Finding }) {
  return (
    <li class={`finding is-${TONES[state]}`}>
      <Icon name={ICONS[state]} />
      <div>
        <h3>
          {words.checks[name]} <Badge tone={TONES[state]}>{words.states[state]}</Badge>
        </h3>
        <p>{text}</p>
        {help !== null && <p class="finding-help">{help}</p>}
        {cures.length > 0 && (
          <dl class="cures">
            {cures.map(({ place, line }) => (
              <div key={place}>
                <dt>{place}</dt>
                <dd>
                  <code>{line}</code>
                </dd>
              </div>
            ))}
          </dl>
        )}
      </div>
    </li>
  )
}

/** The command for what a page cannot see. The doctor wants the port, also the usual one. */
function commandFor(database: string): string {
  const { protocol, hostname, port, pathname } = new URL(serverAddress())
  const shownPort = port === '' ? (protocol === 'https:' ? '443' : '80') : port
  const name = database === '' ? 'DATABASE' : encodeURIComponent(database)
  return `settee doctor ${protocol}//USER:PASSWORD@${hostname}:${shownPort}${pathname}${name}`
}
