/* Any bytes as a question, and its answer: what is read is bounded and in its normal form, and what is
 * written fits into a datagram, is an answer to that very question and is no question itself. */
#include "fuzz.h"
#include "net/parts.h"

#include <stdlib.h>
#include <string.h>

static void try_answer(const struct dns_question *question, enum dns_code code,
                       const uint8_t *address, size_t address_size, const char *why)
{
    uint8_t packet[DNS_UDP_MAX];
    struct dns_question again;
    size_t size = dns_answer(question, code, address, address_size, 60, why, packet,
                             sizeof(packet));

    must(size >= 12);
    must(packet[0] == question->id >> 8 && packet[1] == (question->id & 0xffU));
    must((packet[2] & 0x80U) != 0 && (packet[3] & 0xfU) == ((unsigned)code & 0xfU));
    must(dns_parse(packet, size, &again) == -1);
    /* Read as a question it has the name, the type and the EDNS that were asked. */
    packet[2] &= 0x7fU;
    if (question->wire_size == 0 || (question->flags & 0x7800U) != 0)
        return;
    must(dns_parse(packet, size, &again) >= 0);
    must(again.wire_size == question->wire_size &&
         memcmp(again.wire, question->wire, again.wire_size) == 0);
    must(again.type == question->type && again.class == question->class &&
         again.has_edns == question->has_edns);
    for (size_t room = 0; room < size; room += 7)
        must(dns_answer(question, code, address, address_size, 60, why, packet, room) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t address[16] = {1, 2, 3, 4};
    struct dns_question question;
    int code = dns_parse(data, size, &question);
    char normal[POLICY_NAME_MAX], why[512];
    struct error err;

    must(code >= -1 && code <= DNS_BAD_VERSION);
    if (code < 0)
        return 0;
    must(question.wire_size <= sizeof(question.wire) && question.size_max >= DNS_UDP_MAX);
    must(memchr(question.name, '\0', sizeof(question.name)) != NULL);
    if (question.name[0] != '\0')
        must(policy_name(question.name, normal, &err) == 0 && strcmp(question.name, normal) == 0);
    memset(why, 'y', sizeof(why) - 1);
    why[sizeof(why) - 1] = '\0';
    try_answer(&question, code == DNS_OK ? DNS_REFUSED : (enum dns_code)code, NULL, 0, why);
    try_answer(&question, DNS_OK, address, 4, NULL);
    try_answer(&question, DNS_OK, address, 16, "");
    return 0;
}
