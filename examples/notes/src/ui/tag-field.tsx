import { useState } from 'preact/hooks'
import { Icon } from './icons.tsx'
import { useServices, useWatched } from './services.ts'

interface TagFieldProps {
  readonly tags: readonly string[]
  readonly onAdd: (id: string) => void
  readonly onRemove: (id: string) => void
}

/** The tags of a note, and a field for another one. */
export function TagField({ tags, onAdd, onRemove }: TagFieldProps) {
  const { library } = useServices()
  const { tags: known } = useWatched(library)
  const [name, setName] = useState('')
  const add = async () => {
    if (name.trim() === '') return
    setName('')
    onAdd(await library.addTag(name))
  }
  return (
    <div class="tags">
      {tags.map((id) => {
        const shown = known.find((tag) => tag.id === id)?.name ?? id.slice('tag:'.length)
        return (
          <span class="chip" key={id}>
            {shown}
            <button type="button" aria-label={`Remove the tag ${shown}`} onClick={() => onRemove(id)}>
              <Icon name="close" />
            </button>
          </span>
        )
      })}
      <input
        class="tag-name"
        aria-label="Add a tag"
        placeholder="Add a tag"
        list="known-tags"
        value={name}
        onInput={(event) => setName(event.currentTarget.value)}
        onBlur={() => void add()}
        onKeyDown={(event) => {
          if (event.key === 'Enter') void add()
        }}
      />
      <datalist id="known-tags">
        {known.map((tag) => (
          <option value={tag.name} key={tag.id} />
        ))}
      </datalist>
    </div>
  )
}
