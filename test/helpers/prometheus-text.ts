/** A strict reader of Prometheus' text format 0.0.4, which throws at anything unknown. */

export interface ReadSample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export interface ReadFamily {
  readonly name: string
  readonly type: string
  readonly help: string
  readonly samples: ReadSample[]
}

const HELP = /^# HELP ([a-zA-Z_:][\w:]*) (\S.*)$/
const TYPE = /^# TYPE ([a-zA-Z_:][\w:]*) (counter|gauge|histogram|summary)$/
const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|NaN|[+-]Inf)$/
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)/y
/** The suffixes that the names of samples may add to the name of their family. */
const SUFFIXES: Readonly<Record<string, readonly string[]>> = {
  counter: [''],
  gauge: [''],
  histogram: ['_bucket', '_sum', '_count'],
  summary: ['', '_sum', '_count'],
}

/**
 * @returns the families by name, each with its samples
 * @throws if the text is invalid: a sample without its family, a duplicate sample, decreasing buckets
 */
export function readPrometheus(text: string): Map<string, ReadFamily> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const families = new Map<string, ReadFamily>()
  const seen = new Set<string>()
  const lines = text.split('\n').filter((line) => line !== '')
  let family: ReadFamily | undefined
  for (const [at, line] of lines.entries()) {
    if (line.startsWith('# HELP')) {
      family = readHead(line, lines[at + 1] ?? '')
      if (families.has(family.name)) throw new Error(`the family ${family.name} is there twice`)
      families.set(family.name, family)
    } else if (!line.startsWith('# TYPE')) {
      if (family === undefined) throw new Error(`no family: ${line}`)
      readInto(family, line, seen)
    }
  }
  for (const each of families.values()) if (each.type === 'histogram') checkBuckets(each)
  return families
}

function readHead(helpLine: string, typeLine: string): ReadFamily {
  const [, name = '', help = ''] = HELP.exec(helpLine) ?? []
  const [, typed = '', type = ''] = TYPE.exec(typeLine) ?? []
  if (name === '' || name !== typed) throw new Error(`no head: ${helpLine} / ${typeLine}`)
  return { name, help, type, samples: [] }
}

function readInto(family: ReadFamily, line: string, seen: Set<string>): void {
  const [, name = '', labelText = '', value = ''] = SAMPLE.exec(line) ?? []
  const suffixes = SUFFIXES[family.type] ?? []
  if (!suffixes.some((suffix) => name === family.name + suffix)) throw new Error(`not a sample: ${line}`)
  const key = line.slice(0, line.lastIndexOf(' '))
  if (seen.has(key)) throw new Error(`twice: ${key}`)
  seen.add(key)
  family.samples.push({
    name,
    labels: readLabels(labelText),
    value: Number(value.replace('Inf', 'Infinity')),
  })
}

function readLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {}
  LABEL.lastIndex = 0
  while (LABEL.lastIndex < text.length) {
    const [, name = '', value = ''] = LABEL.exec(text) ?? []
    if (name === '' || name in labels) throw new Error(`not labels: ${text}`)
    labels[name] = value.replace(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped))
  }
  return labels
}

/** Checks that the buckets of each histogram increase, and that the last one is the count. */
function checkBuckets({ name, samples }: ReadFamily): void {
  const series = new Map<string, { last: number; bound: number; count: number | undefined }>()
  for (const { name: part, labels, value } of samples) {
    const { le, ...others } = labels
    const key = JSON.stringify(others)
    const one = series.get(key) ?? { last: 0, bound: Number.NEGATIVE_INFINITY, count: undefined }
    series.set(key, one)
    if (part === `${name}_count`) one.count = value
    if (part !== `${name}_bucket`) continue
    const bound = Number(le?.replace('Inf', 'Infinity'))
    if (!(bound > one.bound) || value < one.last) throw new Error(`the buckets of ${name} do not rise`)
    one.bound = bound
    one.last = value
  }
  for (const { last, bound, count } of series.values()) {
    if (bound !== Number.POSITIVE_INFINITY || last !== count) throw new Error(`${name} does not add up`)
  }
}

/** The value of the only sample with these labels; undefined if there is none. */
export function sampleOf(
  families: ReadonlyMap<string, ReadFamily>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const family = [...families.values()].find((each) => each.samples.some((sample) => sample.name === name))
  const found = family?.samples.find(
    (sample) =>
      sample.name === name &&
      Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
  )
  return found?.value
}
