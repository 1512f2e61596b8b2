/** The facts of `_up?deep=1` in words, each with what to do. Pure. */

import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'

/** A fact of `_up?deep=1`. */
export interface HealthFact {
  readonly name: string
  readonly ok: boolean
  readonly reason?: string
  readonly [more: string]: unknown
}

export interface Verdict {
  readonly name: string
  readonly tone: 'good' | 'warn' | 'bad'
  readonly title: string
  /** The state in a sentence. */
  readonly text: string
  /** What to do; null: nothing. */
  readonly help: string | null
  readonly link: { readonly href: string; readonly text: string } | null
}

const { facts: words } = en.overview

type Words = Pick<Verdict, 'text'> & Partial<Pick<Verdict, 'tone' | 'help' | 'link'>>

interface Reader {
  readonly title: string
  readonly fine: (fact: HealthFact) => Words
  readonly wrong: (fact: HealthFact, reason: string) => Words
}

const toBackups = { href: hashOf(['settings', 'backups']), text: words.toBackups }
const toLog = { href: hashOf(['settings', 'log']), text: words.toLog }
const toReplication = { href: hashOf(['replication']), text: words.toStandby }

const READERS: Readonly<Record<string, Reader>> = {
  threads: {
    title: words.threads.title,
    fine: ({ threads }) => ({ text: words.threads.fine(numberIn(threads)) }),
    wrong: (_fact, text) => ({ text, help: words.threads.help, link: toLog }),
  },
  databases: {
    title: words.databases.title,
    fine: () => ({ text: words.databases.fine }),
    wrong: (fact) => ({
      text: words.databases.wrong(numberIn(fact.count), faultyOf(fact)),
      help: words.databases.help,
      link: toBackups,
    }),
  },
  store: {
    title: words.store.title,
    fine: () => ({ text: words.store.fine }),
    wrong: (_fact, text) => ({ text, help: words.store.help }),
  },
  free_space: {
    title: words.disk.title,
    fine: ({ free, floor }) => ({ text: words.disk.fine(numberIn(free), numberIn(floor)) }),
    wrong: ({ free, floor }, text) => ({
      text: typeof free === 'number' ? words.disk.wrong(free, numberIn(floor)) : text,
      help: words.disk.help,
    }),
  },
  backup: {
    title: words.backup.title,
    fine: ({ age, interval, reason, by_store: isByStore }) => {
      if (isByStore === true) return { text: words.backup.byStore }
      if (reason === undefined) return { text: words.backup.fine(numberIn(age)) }
      const text = typeof age === 'number' ? words.backup.unplannedSince(age) : words.backup.unplanned
      return { tone: 'warn', text, help: words.backup.planHelp, link: interval === 0 ? toBackups : null }
    },
    wrong: (_fact, text) => ({ text, help: words.backup.help, link: toBackups }),
  },
  scrub: {
    title: words.scrub.title,
    fine: ({ last, reason }) => {
      if (reason !== undefined)
        return { tone: 'warn', text: words.scrub.unplanned, help: words.scrub.planHelp }
      return { text: words.scrub.fine(typeof last === 'string' ? last.slice(0, 10) : null) }
    },
    wrong: (_fact, text) => ({ text, help: words.scrub.help, link: toBackups }),
  },
  standby: {
    title: words.standby.title,
    fine: ({ first: primary, lag }) => ({
      text: words.standby.fine(String(primary ?? ''), numberIn(lag)),
      link: toReplication,
    }),
    wrong: (_fact, text) => ({ text, help: words.standby.help, link: toReplication }),
  },
}

/** An unsafe setting of `/_settee/configuration`. */
export interface UnsafeSetting {
  readonly section: string
  /** null: the whole section. */
  readonly key: string | null
  readonly severity: 'danger' | 'caution'
  readonly reason: string
}

/** @returns what the settings in effect risk, the worst in words */
export function settingsVerdict(unsafe: readonly UnsafeSetting[]): Verdict {
  const [first] = unsafe
  const title = words.settings.title
  if (first === undefined) {
    return { name: 'settings', tone: 'good', title, text: words.settings.fine, help: null, link: null }
  }
  const name = first.key === null ? first.section : `${first.section}/${first.key}`
  return {
    name: 'settings',
    tone: 'warn',
    title,
    text: words.settings.unsafe(unsafe.length, name, first.reason),
    help: null,
    link: { href: hashOf(['settings']), text: words.toSettings },
  }
}

/** Alarms have a part of their own. */
const SHOWN_ELSEWHERE = 'alarms'

/** @param others verdicts on other things @returns what is wrong first */
export function verdictsOf(facts: readonly HealthFact[], others: readonly Verdict[] = []): Verdict[] {
  const verdicts = [...facts.filter(({ name }) => name !== SHOWN_ELSEWHERE).map(verdictOf), ...others]
  const order = ['bad', 'warn', 'good'] as const
  return order.flatMap((tone) => verdicts.filter((verdict) => verdict.tone === tone))
}

function verdictOf(fact: HealthFact): Verdict {
  const reader = READERS[fact.name] ?? OTHER
  const {
    tone = fact.ok ? 'good' : 'bad',
    text,
    help = null,
    link = null,
  } = fact.ok ? reader.fine(fact) : reader.wrong(fact, fact.reason ?? words.other.wrong)
  return { name: fact.name, tone, title: reader.title || fact.name, text, help, link }
}

/** A newer server may report facts that this page does not know. */
const OTHER: Reader = {
  title: '',
  fine: ({ reason }) => ({ text: reason ?? words.other.fine }),
  wrong: (_fact, text) => ({ text, link: toLog }),
}

function numberIn(value: unknown): number {
  return typeof value === 'number' ? value : 0
}

function faultyOf({ faulty }: HealthFact): string {
  if (!Array.isArray(faulty)) return ''
  return faulty
    .map(({ database, reason }: { database: string; reason: string }) => `${database}: ${reason}`)
    .join(' ')
}
