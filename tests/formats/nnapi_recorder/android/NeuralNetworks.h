/* Stands in for the NDK's header: the calls that generated sources make, each printed as one line of JSON. */
#ifndef NETCONV_TEST_NEURAL_NETWORKS_H
#define NETCONV_TEST_NEURAL_NETWORKS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define ANEURALNETWORKS_NO_ERROR 0
typedef struct { int number; } ANeuralNetworksModel;
typedef struct { int unused; } ANeuralNetworksMemory;
typedef int32_t ANeuralNetworksOperationType;
typedef struct { int32_t type; uint32_t dimensionCount; const uint32_t *dimensions; float scale; int32_t zeroPoint; } ANeuralNetworksOperandType;
typedef struct { uint32_t channelDim; uint32_t scaleCount; const float *scales; } ANeuralNetworksSymmPerChannelQuantParams;

static int models_made;
static inline void indexes(const char *key, uint32_t n, const uint32_t *v) {
    printf(", \"%s\": [", key);
    for (uint32_t i = 0; i < n; ++i) printf("%s%u", i ? ", " : "", (unsigned)v[i]);
    printf("]");
}
static inline int begin(const ANeuralNetworksModel *m, const char *call) { return printf("{\"model\": %d, \"call\": \"%s\"", m->number, call); }
static inline int end(void) { puts("}"); return ANEURALNETWORKS_NO_ERROR; }
static inline int ANeuralNetworksModel_create(ANeuralNetworksModel **m) {
    *m = malloc(sizeof **m);
    (*m)->number = models_made++;
    return ANEURALNETWORKS_NO_ERROR;
}
static inline void ANeuralNetworksModel_free(ANeuralNetworksModel *m) { free(m); }
static inline int ANeuralNetworksModel_finish(ANeuralNetworksModel *m) { begin(m, "finish"); return end(); }
static inline int ANeuralNetworksModel_addOperand(ANeuralNetworksModel *m, const ANeuralNetworksOperandType *t) {
    begin(m, "operand");
    printf(", \"type\": %d, \"scale\": %.9g, \"zeroPoint\": %d", (int)t->type, (double)t->scale, (int)t->zeroPoint);
    indexes("dimensions", t->dimensionCount, t->dimensions);
    return end();
}
static inline int ANeuralNetworksModel_setOperandValue(ANeuralNetworksModel *m, int32_t i, const void *data, size_t n) {
    begin(m, "value");
    printf(", \"operand\": %d, \"bytes\": ", (int)i);
    if (!data) printf("null");
    for (size_t k = 0; data && k < n; ++k) printf("%s%u", k ? ", " : "[", ((const uint8_t *)data)[k]);
    if (data) printf("]");
    return end();
}
static inline int ANeuralNetworksModel_setOperandValueFromMemory(ANeuralNetworksModel *m, int32_t i, const ANeuralNetworksMemory *w, size_t offset, size_t n) {
    begin(m, "memory");
    printf(", \"operand\": %d, \"offset\": %zu, \"length\": %zu, \"weights\": %s", (int)i, offset, n, w ? "true" : "false");
    return end();
}
static inline int ANeuralNetworksModel_setOperandValueFromModel(ANeuralNetworksModel *m, int32_t i, const ANeuralNetworksModel *child) {
    begin(m, "subgraph");
    printf(", \"operand\": %d, \"child\": %d", (int)i, child->number);
    return end();
}
static inline int ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(ANeuralNetworksModel *m, int32_t i, const ANeuralNetworksSymmPerChannelQuantParams *p) {
    begin(m, "channels");
    printf(", \"operand\": %d, \"dim\": %u, \"scales\": [", (int)i, (unsigned)p->channelDim);
    for (uint32_t k = 0; k < p->scaleCount; ++k) printf("%s%.9g", k ? ", " : "", (double)p->scales[k]);
    printf("]");
    return end();
}
static inline int ANeuralNetworksModel_addOperation(
    ANeuralNetworksModel *m, ANeuralNetworksOperationType t, uint32_t ni, const uint32_t *in, uint32_t no, const uint32_t *out) {
    begin(m, "operation");
    printf(", \"type\": %d", (int)t);
    indexes("inputs", ni, in);
    indexes("outputs", no, out);
    return end();
}
static inline int ANeuralNetworksModel_identifyInputsAndOutputs(ANeuralNetworksModel *m, uint32_t ni, const uint32_t *in, uint32_t no, const uint32_t *out) {
    begin(m, "ends");
    indexes("inputs", ni, in);
    indexes("outputs", no, out);
    return end();
}
static inline int ANeuralNetworksModel_relaxComputationFloat32toFloat16(ANeuralNetworksModel *m, bool allow) {
    begin(m, "relaxed");
    printf(", \"allow\": %d", allow);
    return end();
}
#endif
