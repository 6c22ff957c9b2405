// data/features/feature_names.h - the words of a saved set; private to the
// module.
#ifndef HKI_FEATURE_NAMES_H
#define HKI_FEATURE_NAMES_H

#define HKI_FEATURES_FORMAT "hooke.features"
#define HKI_FEATURES_VERSION 1

// Of the value i; columns: i + 1.
extern const char *const hki_missing_names[7],
    *const hki_normalizer_names[4], *const hki_transform_names[2],
                                        *const hki_combiner_names[3],
                                            *const hki_column_names[9];

#endif // HKI_FEATURE_NAMES_H
