import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'

interface ChoiceGroupProps<Value extends string> {
  readonly legend: string
  readonly value: Value
  readonly choices: readonly {
    readonly value: Value
    readonly text: string
    readonly hint: ComponentChildren
  }[]
  readonly onChange: (value: Value) => void
  readonly disabled?: boolean
}

/** One of a few choices, each explained. */
export function ChoiceGroup<Value extends string>({
  legend,
  value,
  choices,
  onChange,
  disabled = false,
}: ChoiceGroupProps<Value>) {
  const id = useId()
  return (
    <fieldset class="choices" disabled={disabled}>
      <legend class="legend">{legend}</legend>
      {choices.map((choice) => (
        <div class="check-field" key={choice.value}>
          <input
            type="radio"
            id={`${id}-${choice.value}`}
            name={id}
            checked={choice.value === value}
            aria-describedby={`${id}-${choice.value}-hint`}
            onChange={() => onChange(choice.value)}
          />
          <label for={`${id}-${choice.value}`}>{choice.text}</label>
          <p class="hint" id={`${id}-${choice.value}-hint`}>
            {choice.hint}
          </p>
        </div>
      ))}
    </fieldset>
  )
}
