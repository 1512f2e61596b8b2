import { advise } from '../advice.ts'
import { type Finding, fine, note, skipped, wrong } from '../finding.ts'
import { toldFailure } from '../quote.ts'
import type { Scene } from '../scene.ts'

/** A feed that was kept open. */
export interface LongFeed {
  /** In ms. */
  readonly lasted: number
  /** `open`: as long as was waited. */
  readonly ended: 'open' | 'order' | 'cut'
  readonly status: number | null
  readonly failure: string | null
}

export interface LongFacts {
  /** A continuous feed with heartbeats, which never ends by itself. */
  readonly beating: LongFeed
  /** A longpoll without, as apps ask for that use time-outs in their place. */
  readonly silent: LongFeed
}

/** Judges how long feeds live; null: they were not waited for. */
export function judgeLongFeed(facts: LongFacts | null, scene: Scene): Finding {
  if (facts === null)
    return skipped(
      'long feed',
      'Not waited for: whether a feed is cut after a minute or two, --long finds out.',
    )
  const { beating, silent } = facts
  const { stage } = scene
  if (isCut(beating)) {
    return wrong(
      'long feed',
      `A feed with heartbeats was cut after ${seconds(beating.lasted)}: ${how(beating, scene)}.`,
      advise('cut', stage, 'proxy'),
    )
  }
  if (isCut(silent)) {
    return note(
      'long feed',
      `A feed without heartbeats was cut after ${seconds(silent.lasted)}: ${how(silent, scene)}. With heartbeats it lives.`,
      advise('cut', stage, 'proxy'),
    )
  }
  const lasted = seconds(beating.lasted)
  const text = beating.ended === 'open' ? `lived for ${lasted}` : `was ended in order after ${lasted}`
  return fine(
    'long feed',
    `A feed with heartbeats ${text}; one without ended in order after ${seconds(silent.lasted)}.`,
  )
}

function isCut({ ended, status }: LongFeed): boolean {
  return ended === 'cut' || status === null || status >= 400
}

function how({ status, failure }: LongFeed, { quote }: Scene): string {
  if (status !== null && status >= 400) return `${status}`
  return toldFailure(failure ?? 'ECONNRESET', quote)
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`
}
