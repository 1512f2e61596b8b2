/** The options of a view query. */
import { CheckField, SelectField, TextField } from '../../parts/field.tsx'
import { en } from '../../strings/en.ts'
import type { ViewFault, ViewOptions } from './view-query.ts'

interface ViewFormProps {
  readonly options: ViewOptions
  readonly faults: readonly ViewFault[]
  /** The name of the view's reduce function; null without one. */
  readonly reduce: string | null
  readonly isPartitioned: boolean
  onChange(options: ViewOptions): void
}

const { form: texts } = en.queries
const LEVELS = ['1', '2', '3', '4', '5'] as const

export function ViewForm({ options, faults, reduce, isPartitioned, onChange }: ViewFormProps) {
  const set = (change: Partial<ViewOptions>) => onChange({ ...options, ...change })
  const fault = (name: ViewFault) =>
    faults.includes(name) && options[name].trim() !== '' ? texts.notJson : null
  const isReduced = reduce !== null && options.isReduced
  return (
    <>
      <div class="fields">
        {isPartitioned && (
          <TextField
            label={texts.partition}
            hint={texts.partitionHint}
            value={options.partition}
            onChange={(partition) => set({ partition })}
            isCode
          />
        )}
        <SelectField
          label={texts.range}
          value={options.range}
          options={[
            ['all', texts.all],
            ['key', texts.oneKey],
            ['between', texts.between],
          ]}
          onChange={(range) => set({ range })}
        />
        {options.range === 'key' && (
          <TextField
            label={texts.key}
            hint={texts.keyHint}
            value={options.key}
            error={fault('key')}
            onChange={(key) => set({ key })}
            isCode
          />
        )}
        {options.range === 'between' && (
          <>
            <TextField
              label={texts.from}
              hint={texts.endHint}
              value={options.startKey}
              error={fault('startKey')}
              onChange={(startKey) => set({ startKey })}
              isCode
            />
            <TextField
              label={texts.to}
              hint={texts.toHint}
              value={options.endKey}
              error={fault('endKey')}
              onChange={(endKey) => set({ endKey })}
              isCode
            />
          </>
        )}
        {isReduced && (
          <SelectField
            label={texts.group}
            value={options.grouping}
            options={[
              ['none', texts.groupNone],
              ['exact', texts.groupExact],
              ...LEVELS.map((level) => [level, texts.groupLevel(Number(level))] as const),
            ]}
            onChange={(grouping) => set({ grouping })}
          />
        )}
      </div>
      <div class="checks">
        {reduce !== null && (
          <CheckField
            label={texts.reduce(reduce)}
            isOn={options.isReduced}
            onChange={(next) => set({ isReduced: next })}
          />
        )}
        {!isReduced && (
          <CheckField
            label={texts.docs}
            isOn={options.includesDocs}
            onChange={(includesDocs) => set({ includesDocs })}
          />
        )}
        <CheckField
          label={texts.descending}
          isOn={options.isDescending}
          onChange={(isDescending) => set({ isDescending })}
        />
        <CheckField
          label={texts.stale}
          hint={texts.staleHint}
          isOn={options.isStale}
          onChange={(isStale) => set({ isStale })}
        />
      </div>
    </>
  )
}
