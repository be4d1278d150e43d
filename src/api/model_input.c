/* sl_model_input: what a model wants to be fed. */
#include <string.h>

#include "core/model.h"

const char *sl_model_input(const sl_model *model, int index, int *vocabulary, int *features, int *has_steps) {
    for (int i = 0; model && index >= 0 && i < model->layer_count; i++) {
        const sli_layer *layer = model->layers[i];
        if (strcmp(layer->kind->class_name, "InputLayer") != 0 || index-- > 0) continue;
        const sli_input_options *options = layer->options;
        if (vocabulary) *vocabulary = options->vocabulary;
        if (features) *features = options->vocabulary ? 0 : options->features;
        if (has_steps) *has_steps = !options->no_steps;
        return layer->name;
    }
    return NULL;
}
