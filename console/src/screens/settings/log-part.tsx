/** The log, live: newest first, by level and text; each line opens to show all of it. */
import { useEffect, useState } from 'preact/hooks'
import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { Button } from '../../parts/button.tsx'
import { CopyButton } from '../../parts/copy-field.tsx'
import { SelectField, TextField } from '../../parts/field.tsx'
import { Badge, Empty, ErrorNotice, Skeleton, type Tone } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { go } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { clock, exactTime } from '../../strings/format.ts'
import { factsOf, type LogEntry, type LogLine } from './log-lines.ts'
import { configPath } from './settings-api.ts'
import { type FollowedLog, useLog } from './use-log.ts'

const { log: texts } = en.settings

type Level = keyof typeof texts.levels

const LEVELS = Object.entries(texts.levels) as [Level, string][]
const TONES: Readonly<Record<string, Tone>> = {
  notice: 'info',
  warn: 'warn',
  error: 'bad',
  fatal: 'bad',
}
/** After the last key, in ms. */
const TYPING_MS = 300

export default function LogPart({ query }: Route) {
  const level = LEVELS.find(([name]) => name === query.level)?.[0] ?? 'debug'
  const filter = query.q ?? ''
  const [text, setText] = useState(filter)
  const [isPaused, setPaused] = useState(false)
  const log = useLog({ level, filter }, isPaused)
  useEffect(() => {
    const timer = setTimeout(() => show(level, text), TYPING_MS)
    return () => clearTimeout(timer)
  }, [text, level])
  return (
    <>
      <search class="filters">
        <TextField
          label={texts.filter}
          type="search"
          placeholder={texts.filterHint}
          value={text}
          isCode
          onChange={setText}
        />
        <SelectField
          label={texts.level}
          value={level}
          options={LEVELS}
          onChange={(next) => show(next, text)}
        />
      </search>
      <LeastLevel />
      {log.failure !== null && (
        <ErrorNotice
          failure={log.failure}
          title={log.state === 'refused' ? texts.refused : texts.lost}
          {...(log.state === 'refused' && { onRetry: log.retry })}
        />
      )}
      <Card
        isFlush
        title={
          <>
            <StateBadge log={log} /> <span class="log-count">{texts.lines(log.entries.length)}</span>
          </>
        }
        actions={
          <>
            <Button
              isSmall
              icon={isPaused ? 'play' : 'pause'}
              isPressed={isPaused}
              onClick={() => setPaused(!isPaused)}
            >
              {isPaused ? texts.resume : texts.pause}
            </Button>
            <Button isSmall icon="close" disabled={log.entries.length === 0} onClick={log.clear}>
              {texts.clear}
            </Button>
          </>
        }
      >
        <Lines log={log} isFiltered={filter !== '' || level !== 'debug'} />
      </Card>
    </>
  )
}

function show(level: Level, text: string): void {
  const query = { level: level === 'debug' ? undefined : level, q: text === '' ? undefined : text }
  const hash = hashOf(['settings', 'log'], query)
  if (hash !== location.hash) go(hash, { replaces: true })
}

/** What the server logs at all. */
function LeastLevel() {
  const { data } = useLoad((signal) => ask<string>(configPath('log', 'level'), { signal }), 'level')
  return (
    <p class="fine">
      {data === undefined ? '\u00a0' : texts.least(data)}{' '}
      <a href={hashOf(['settings'], { q: 'log/level' })}>{texts.change}</a>
    </p>
  )
}

function StateBadge({ log: { state } }: { readonly log: FollowedLog }) {
  switch (state) {
    case 'live':
      return <Badge tone="good">{texts.live}</Badge>
    case 'paused':
      return <Badge>{texts.paused}</Badge>
    case 'waiting':
      return <Badge>{texts.waiting}</Badge>
    default:
      return <Badge tone="warn">{texts.reconnecting}</Badge>
  }
}

function Lines({ log, isFiltered }: { readonly log: FollowedLog; readonly isFiltered: boolean }) {
  const { entries, state } = log
  if (entries.length > 0) {
    return (
      <ul class="log" aria-label={texts.list} onKeyDown={moveFocus}>
        {entries.map((entry) => (
          <li key={entry.key}>
            <Entry entry={entry} />
          </li>
        ))}
      </ul>
    )
  }
  if (state === 'waiting') {
    return (
      <div class="log-wait">
        <Skeleton lines={6} />
      </div>
    )
  }
  return isFiltered ? (
    <Empty icon="search" title={texts.noneFiltered}>
      {texts.noneFilteredHelp}
    </Empty>
  ) : (
    <Empty title={texts.none}>{texts.noneHelp}</Empty>
  )
}

function Entry({ entry }: { readonly entry: LogEntry }) {
  if ('missed' in entry) return <p class="log-missed">{texts.missed(entry.missed)}</p>
  return <Line line={entry.line} />
}

function Line({ line }: { readonly line: LogLine }) {
  const [isOpen, setOpen] = useState(false)
  const { level, time, msg = '' } = line
  const facts = factsOf(line)
  return (
    <details class="log-line" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <time class="is-code soft" dateTime={time} title={exactTime(time)}>
          {clock(time)}
        </time>
        <span class="log-level">
          <Badge tone={TONES[level] ?? 'plain'}>{level}</Badge>
        </span>
        <span class="log-text">
          <span class="log-msg">{msg}</span>
          {facts !== '' && <span class="log-facts is-code">{facts}</span>}
        </span>
      </summary>
      {isOpen && (
        <div class="log-detail">
          <pre>{JSON.stringify(line, null, 2)}</pre>
          <CopyButton label={texts.copy} value={JSON.stringify(line)} />
        </div>
      )}
    </details>
  )
}

const STEPS: Readonly<Record<string, (at: number, count: number) => number>> = {
  ArrowDown: (at) => at + 1,
  ArrowUp: (at) => at - 1,
  Home: () => 0,
  End: (_, count) => count - 1,
}

/** The arrow keys go from line to line. */
function moveFocus(event: KeyboardEvent & { readonly currentTarget: HTMLElement }): void {
  const step = STEPS[event.key]
  const line = (event.target as HTMLElement).closest('summary')
  if (step === undefined || line === null) return
  const lines = [...event.currentTarget.querySelectorAll('summary')]
  const next = lines[step(lines.indexOf(line), lines.length)]
  if (next === undefined) return
  event.preventDefault()
  next.focus()
}
